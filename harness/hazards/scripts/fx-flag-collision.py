"""A compiled call in one thread while another thread traces with FX: RuntimeError. torch < 2.14, CPU.

The flag that says "an FX trace is going on" is one for the whole process, so the thread that calls compiled code is told
of a trace that is not its own. Expected: it runs. Exit code 1: it raised.
"""

import sys
import threading

import torch
from torch.fx.experimental.proxy_tensor import make_fx

tracing, called = threading.Event(), threading.Event()
failed = []


def traced(x):
    tracing.set()  # we are inside the trace now
    called.wait(30)
    return x * 3


@torch.compile(backend="eager")
def double(x):
    return x * 2


def caller():
    tracing.wait(30)
    try:
        double(torch.ones(2))
    except RuntimeError as error:
        failed.append(error)
    finally:
        called.set()


threads = [threading.Thread(target=make_fx(traced), args=(torch.ones(2),)), threading.Thread(target=caller)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
if failed:
    print(f"torch {torch.__version__}: {type(failed[0]).__name__}: {failed[0]}")
    sys.exit(1)
print(f"torch {torch.__version__}: it did not happen")
