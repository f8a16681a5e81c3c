"""Two FX traces that overlap leave nn.Module patched for good, and the FX flag set. All releases of torch, CPU.

A enters, B enters, A leaves, B leaves: B puts back what it found, which is A's. Expected: after both have ended, nothing of
them is left. Exit code 1: nn.Module.__call__ is still that of a trace, or (torch < 2.14) compiled code raises.
"""

import sys
import threading

import torch
from torch.fx.experimental.proxy_tensor import make_fx

torch._C._ensureCUDADeviceGuardSet()  # a CUDA build of 2.11 without a GPU crashes otherwise; another matter
a_inside, b_inside, a_left = threading.Event(), threading.Event(), threading.Event()


def first(x):
    a_inside.set()
    b_inside.wait(30)
    return x * 3


def second(x):
    b_inside.set()
    a_left.wait(30)
    return x * 5


def trace(function, before, after):
    before.wait(30)
    try:
        make_fx(function)(torch.ones(2))
    except (RuntimeError, AssertionError) as error:  # the patcher may complain as well; what counts is what stays
        print(f"a trace ended with {type(error).__name__}: {error}")
    finally:
        after.set()


module_call = torch.nn.Module.__call__
at_once = threading.Event()
at_once.set()
threads = [
    threading.Thread(target=trace, args=(first, at_once, a_left)),
    threading.Thread(target=trace, args=(second, a_inside, threading.Event())),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)

left = []
if torch.nn.Module.__call__ is not module_call:
    left.append("nn.Module.__call__ is another function than before")
try:
    torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))
except RuntimeError as error:
    left.append(f"{type(error).__name__}: {error}")
print(f"torch {torch.__version__}: {'; '.join(left) or 'it did not happen'}")
sys.exit(1 if left else 0)
