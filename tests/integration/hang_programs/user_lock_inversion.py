"""A backend takes a lock inside a compile; another thread holds that lock and calls something that must be compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from running import Threads, run

cache_lock = threading.Lock()
compiling = threading.Event()
holding = threading.Event()


def backend(graph: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    compiling.set()
    holding.wait(240)
    with cache_lock:
        return graph


@torch.compile(backend=backend)
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.compile(backend="eager")
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def compiles() -> None:
    double(torch.ones(2))


def holds() -> None:
    compiling.wait(240)
    with cache_lock:
        holding.set()
        triple(torch.ones(2))


def threads() -> Threads:
    return [("compiler", compiles), ("holder", holds)]


if __name__ == "__main__":
    run(threads())
