"""Two FX traces that overlap leave the FX flag set for good: every later compiled call raises. torch < 2.14, CPU.

A enters, B enters, A leaves, B leaves: B puts back what it found, which is A's. Expected: after both have ended, compiled
code runs. Exit code 1: it raises, though nothing traces any more.
"""

import sys
import threading

import torch
from torch.fx.experimental.proxy_tensor import make_fx

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

try:
    torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))
except RuntimeError as error:
    print(f"torch {torch.__version__}: {type(error).__name__}: {error}")
    sys.exit(1)
print(f"torch {torch.__version__}: it did not happen")
