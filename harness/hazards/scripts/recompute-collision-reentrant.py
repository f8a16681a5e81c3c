"""A reentrant checkpoint recomputes a compiled region while another thread traces with FX: RuntimeError. torch < 2.14.

Expected: the backward runs. Exit code 1: it raised.
"""

import sys
import threading

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

torch._C._ensureCUDADeviceGuardSet()  # a CUDA build of 2.11 without a GPU crashes otherwise; another matter
ready, tracing, done = threading.Event(), threading.Event(), threading.Event()
failed = []


def traced(x):
    tracing.set()
    done.wait(30)
    return x * 3


def tracer():
    ready.wait(60)
    make_fx(traced)(torch.ones(2))


@torch.compile(backend="aot_eager")
def compiled(x):
    return x.sin()


def trainer():
    x = torch.ones(2, requires_grad=True)
    y = checkpoint(compiled, x, use_reentrant=True)  # compiles here, while nobody traces
    ready.set()
    tracing.wait(30)
    try:
        y.sum().backward()
    except RuntimeError as error:
        failed.append(error)
    finally:
        done.set()


threads = [threading.Thread(target=tracer), threading.Thread(target=trainer)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
print(f"torch {torch.__version__}: {failed[0] if failed else 'it did not happen'}")
sys.exit(1 if failed else 0)
