"""A checkpoint's recompute in one thread sets the CPU generator of all threads back. All releases of torch, CPU.

No compiler is needed: with preserve_rng_state, which is the default, the process-wide generator is set to what it was in
the forward and then put back. What another thread drew meanwhile, it draws again. Exit code 1: two draws are equal.
"""

import sys
import threading

import torch
from torch.utils.checkpoint import checkpoint

recomputing, drawn = threading.Event(), threading.Event()
calls = []


def layer(x):
    calls.append(x)
    if len(calls) == 2:  # the recompute
        recomputing.set()
        drawn.wait(30)
    return x.sin()


def trainer():
    x = torch.ones(2, requires_grad=True)
    checkpoint(layer, x, use_reentrant=False).sum().backward()


thread = threading.Thread(target=trainer)
thread.start()
recomputing.wait(60)
first = torch.rand(3)
drawn.set()
thread.join(60)
second = torch.rand(3)

print(f"torch {torch.__version__}: drew {first.tolist()}\n and then {second.tolist()}")
sys.exit(1 if torch.equal(first, second) else 0)
