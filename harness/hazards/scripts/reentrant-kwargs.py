"""A reentrant checkpoint whose tensors are passed by keyword: parameters without a gradient. All releases, CPU.

No race at all, and no error: the checkpoint looks at positional tensors only, and where none of these needs a gradient its
output does not either. Expected: a gradient, or an error. Exit code 1: the parameter has none.
"""

import functools
import sys

import torch
from torch.utils.checkpoint import checkpoint

layer, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)


def block(positions, hidden):
    return layer(hidden) + positions


hidden = torch.ones(1, 2, requires_grad=True)
out = checkpoint(functools.partial(block, hidden=hidden), torch.zeros(1, 2), use_reentrant=True)
head(out).sum().backward()

print(f"torch {torch.__version__}: gradient of the head {head.weight.grad}, of the layer {layer.weight.grad}")
sys.exit(1 if layer.weight.grad is None else 0)
