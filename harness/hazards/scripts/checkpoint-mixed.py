"""Another thread's stance makes a checkpoint's recompute run eager where its forward ran compiled: wrong gradients.

All releases of torch, CPU. Compiled and eager, the product keeps the same two tensors for its backward, in another order,
which the checkpoint cannot tell. Expected: right gradients, or an error. Exit code 1: wrong ones and no error.
"""

import sys
import threading

import torch
from torch.utils.checkpoint import checkpoint

forward_done, stance_set, done = threading.Event(), threading.Event(), threading.Event()


@torch.compile(backend="aot_eager")
def product(a, b):
    return a * b


def debugger():
    forward_done.wait(60)
    with torch.compiler.set_stance("force_eager"):
        stance_set.set()
        done.wait(60)


thread = threading.Thread(target=debugger)
thread.start()
a, b = torch.full((3,), 2.0, requires_grad=True), torch.full((3,), 5.0, requires_grad=True)
y = checkpoint(product, a, b, use_reentrant=False)
forward_done.set()
stance_set.wait(60)
y.sum().backward()
done.set()
thread.join(60)
print(f"torch {torch.__version__}: a = 2, b = 5: d(ab)/da = {a.grad[0]:.0f}, d(ab)/db = {b.grad[0]:.0f}")
sys.exit(1 if a.grad[0] != 5 or b.grad[0] != 2 else 0)
