"""A lock around each thread's whole first forward and backward does not prevent the FX error. torch < 2.13, CPU.

B, warm, takes no lock any more; A, in its locked first step, compiles for another shape. Exit code 1: B's step raised.
"""

import sys
import threading

import torch
import torch.fx._symbolic_trace as symbolic_trace

torch._C._ensureCUDADeviceGuardSet()  # a CUDA build of 2.11 without a GPU crashes otherwise; another matter
lock = threading.Lock()
b_is_warm, a_traces, b_called = threading.Event(), threading.Event(), threading.Event()
failed = []
patch = symbolic_trace._patch_wrapped_functions


def inside_a_trace(patcher):  # the flag is set
    if threading.current_thread().name == "A":
        a_traces.set()
        b_called.wait(30)
    return patch(patcher)


@torch.compile(backend="aot_eager", dynamic=False)
def double(x):
    return x * 2


def step(x):
    double(x).sum().backward()


def a():
    b_is_warm.wait(60)
    with lock:  # the whole first step
        step(torch.ones(5, requires_grad=True))


def b():
    with lock:
        step(torch.ones(4, requires_grad=True))
    b_is_warm.set()
    a_traces.wait(60)
    try:
        step(torch.ones(4, requires_grad=True))  # warm, so no lock
    except RuntimeError as error:
        failed.append(error)
    b_called.set()


symbolic_trace._patch_wrapped_functions = inside_a_trace
threads = [threading.Thread(target=a, name="A"), threading.Thread(target=b, name="B")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(90)
print(f"torch {torch.__version__}: {failed[0] if failed else 'it did not happen'}")
sys.exit(1 if failed else 0)
