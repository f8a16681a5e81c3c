"""Replaces parts of torch for good, before and after it has used them, and some that others replace as well.

Every wrapper counts its calls, and the counts are printed: three times it works with all wrappers but that of `trace`, which
it takes away before the last.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import torch
import torch.fx

calls: Counter[str] = Counter()


def wrap(owner: Any, name: str) -> Any:
    """In its place a function that counts and calls it; returns what was there."""
    was = getattr(owner, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return was(*args, **kwargs)

    setattr(owner, name, wrapper)
    return was


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def work(size: int) -> None:
    """A step, a trace and a compile."""
    model = torch.nn.Linear(4, 4)
    model(torch.ones(2, 4)).sum().backward()
    torch.fx.symbolic_trace(double)
    torch.compile(double, backend="eager", dynamic=False)(torch.ones(size))


work(2)
wrap(torch.nn.Module, "__call__")
wrap(torch, "compile")
wrap(torch.Tensor, "backward")
wrap(torch.autograd.graph, "_engine_run_backward")
wrap(torch.autograd, "_engine_run_backward")
traced = wrap(torch.fx.Tracer, "trace")
work(3)
other = threading.Thread(target=work, args=(4,), name="other")
other.start()
other.join(60)
torch.fx.Tracer.trace = traced  # type: ignore[method-assign]
work(5)
print(sorted(calls.items()), torch.fx.Tracer.trace is traced, flush=True)
