"""Whom a thread in the autograd engine waits for, as the wait-for graph is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.subject.probes import engine
from harness.subject.probes.engine import ANY, EngineProbe
from harness.torch_internals.engine import current_device


def thread(ident: int, name: str, *, in_engine: int = 0, device: str = "", serves: bool = False) -> SimpleNamespace:
    kept = {"in_engine": in_engine, "engine_device": device, "engine": serves, "tracing": 0, "compiling": 0}
    return SimpleNamespace(ident=ident, worker="", label=lambda: name, **kept)


def probe(*threads: SimpleNamespace) -> EngineProbe:
    known: Any = SimpleNamespace(by_ident={one.ident: one for one in threads}, current=lambda: threads[0])
    points: Any = SimpleNamespace(reach=lambda *_: None, blocked=lambda *_: None, unblocked=lambda: None)
    scope: Any = SimpleNamespace(log=SimpleNamespace(emit=lambda *_: None), threads=known, points=points)
    return EngineProbe(scope)


def edges(made: EngineProbe) -> list[tuple[str, str]]:
    return [(edge.waiter, edge.holder) for edge in made.edges()]


ZERO, ONE = thread(10, "engine-0", device="cuda:0", serves=True), thread(11, "engine-1", device="cuda:1", serves=True)
UNKNOWN = thread(12, "engine-?", serves=True)


def test_a_thread_waits_for_the_engine_s_thread_of_its_device() -> None:
    waiter = thread(1, "w", in_engine=1, device="cuda:1")
    assert edges(probe(waiter, ZERO, ONE, UNKNOWN)) == [("w", "engine-1")]
    assert edges(probe(waiter, ZERO, UNKNOWN)) == [("w", "engine-?")], "while none is known to be of that device"


def test_who_waits_for_any_of_several_closes_no_cycle() -> None:
    """A trace on cuda:0 beside a lowering on cuda:1 that waits for the compile lock: cuda:0's thread is free."""
    waiter = thread(1, "w", in_engine=1, device=ANY)
    assert edges(probe(waiter, ZERO, ONE)) == []
    assert edges(probe(waiter, ZERO)) == [("w", "engine-0")]


@pytest.mark.parametrize(("current", "device"), [("cuda:1", "cuda:1"), ("", ANY)])
def test_inside_a_trace_it_is_the_device_of_the_thread(
    monkeypatch: pytest.MonkeyPatch, current: str, device: str
) -> None:
    monkeypatch.setattr(engine, "current_device", lambda: current)
    waiter = thread(1, "w")
    waiter.tracing = 1
    made = probe(waiter, ZERO, ONE)
    made.engine_enter([object()])
    assert waiter.engine_device == device


@pytest.mark.parametrize(
    ("initialised", "devices", "device"), [(True, 2, "cuda:1"), (True, 1, ""), (False, 2, "")]
)
def test_a_device_is_named_where_there_are_several(
    monkeypatch: pytest.MonkeyPatch, initialised: bool, devices: int, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialised)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert current_device() == device
