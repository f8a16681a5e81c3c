"""Another thread's new length changes which graph a checkpoint's recompute runs: CheckpointError. All releases, CPU.

A's forward ran the graph of a static length. B comes with another length, which makes a dynamic graph, and that one is
found first from then on: A's recompute runs it and saves other tensors. Expected: A's backward runs. Exit code 1: it
raised. With dynamic=False it does not.
"""

import sys
import threading

import torch
from torch.utils.checkpoint import checkpoint

forward_done, other_length = threading.Event(), threading.Event()
failed = []


@torch.compile(backend="aot_eager")
def layer(x):
    return (x.sum(0, keepdim=True).expand(x.shape[0], 2) * x).exp()


def a():
    x = torch.ones(4, 2, requires_grad=True)
    y = checkpoint(layer, x * 1, use_reentrant=False)
    forward_done.set()
    other_length.wait(60)
    try:
        y.sum().backward()
    except RuntimeError as error:  # CheckpointError is one
        failed.append(error)


def b():
    forward_done.wait(60)
    layer(torch.ones(5, 2, requires_grad=True))
    other_length.set()


threads = [threading.Thread(target=a), threading.Thread(target=b)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(90)
print(f"torch {torch.__version__}: {f'{type(failed[0]).__name__}: {failed[0]}' if failed else 'it did not happen'}")
sys.exit(1 if failed else 0)
