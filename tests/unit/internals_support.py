"""Shared by the tests of `harness.torch_internals`: a recording sink, a held-open trace, small workloads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch._dynamo
from torch.fx.experimental.proxy_tensor import make_fx

WAIT_S = 20.0


class Recorder:
    """A sink for any adapter: one method for each moment, noted as `(thread ident, name, *plain arguments)`."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.on: dict[str, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)

        def note(*arguments: Any) -> None:
            plain = [value for value in arguments if isinstance(value, str | bool | int)]
            self.events.append((threading.get_ident(), name, *plain))
            if name in self.on:
                self.on[name]()

        return note

    def names(self, ident: int | None = None) -> list[str]:
        return [event[1] for event in self.events if ident is None or event[0] == ident]

    def spoken(self) -> list[str]:
        """Events without threads, arguments after a space: `compile_end graph True`."""
        return [" ".join(map(str, event[1:])) for event in self.events]

    def count(self, spoken: str) -> int:
        return self.spoken().count(spoken)

    def clear(self) -> None:
        self.events.clear()


@contextmanager
def installed(adapter: Any, sink: Any = None) -> Iterator[Any]:
    """The adapter, installed for the length of a `with` block; the test fails if this torch refuses it."""
    availability = adapter.install(sink)
    try:
        assert availability.ok, availability.reason
        yield adapter
    finally:
        adapter.uninstall()


def in_thread(work: Callable[[], Any]) -> Any:
    """`work()` in a new thread; its result, or its exception raised here. TimeoutError: it did not end."""
    executor = ThreadPoolExecutor(max_workers=1)
    try:
        return executor.submit(work).result(timeout=WAIT_S)
    finally:
        executor.shutdown(wait=False)


@contextmanager
def trace_held_open() -> Iterator[None]:
    """Another thread stays inside a `make_fx` trace, its window open, for the length of a `with` block."""
    inside, leave = threading.Event(), threading.Event()

    def body(x: torch.Tensor) -> torch.Tensor:
        inside.set()
        assert leave.wait(WAIT_S)
        return x + 1

    thread = threading.Thread(target=lambda: make_fx(body)(torch.ones(1)))
    thread.start()
    try:
        assert inside.wait(WAIT_S)
        yield
    finally:
        leave.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture
def clean_dynamo() -> Iterator[None]:
    """No compiled code from before, none left behind."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def qkv(length: int = 16, grad: bool = True) -> list[torch.Tensor]:
    """Query, key and value of shape (1, 2, length, 8)."""
    return [torch.randn(1, 2, length, 8, requires_grad=grad) for _ in range(3)]
