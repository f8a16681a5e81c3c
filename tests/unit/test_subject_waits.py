"""Waits that a workload declares, as edges for the watchdog: one that ends by itself, and one whose thread goes on, is none."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.waitgraph import find_cycle
from harness.subject.identity import Thread, Threads
from harness.subject.probes import waits as module
from harness.subject.probes.waits import LIMIT_S, WaitsProbe
from harness.subject.schedules.base import Wait
from harness.subject.standing import DEADLOCK_S, LOOK_S, StandingCycle


class Pair:
    """Two workers that wait for each other, looked at by a clock of its own. `limits`: by ident, as the stacks say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *limits: float | None) -> None:
        self.now, self.asked = 100.0, []
        self.cycle = StandingCycle(DEADLOCK_S)
        threads = Threads()
        self.records = [Thread(f"t{n}", n, n, False, "", worker=f"t{n}") for n in (0, 1)]
        threads.by_ident.update({record.ident: record for record in self.records})
        scope: Any = SimpleNamespace(threads=threads)
        self.probe = WaitsProbe(scope)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(module, "time_limit", lambda ident: self.asked.append(ident) or limits[ident])
        self.waits()

    def waits(self) -> None:
        """Both begin to wait, anew."""
        for number, record in enumerate(self.records):
            record.waits = Wait("queue.get", lambda other=f"t{1 - number}": [other])

    def steps(self) -> None:
        """Both have taken a step, and wait again."""
        for record in self.records:
            record.step += 1
        self.waits()

    def told(self, seconds: float) -> Iterator[float]:
        """When a deadlock is told, of all looks within so many seconds."""
        end = self.now + seconds
        while self.now < end:
            if self.cycle.look(self.probe.edges(), self.now):
                yield self.now - 100.0
            self.now += LOOK_S


def test_two_that_wait_for_each_other_without_a_limit_are_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, None, None)
    assert len(find_cycle(pair.probe.edges())) == 2
    assert list(pair.told(20)) == [DEADLOCK_S]
    assert sorted(pair.asked) == [0, 1], "each stack is read once"


def test_a_wait_that_its_time_limit_will_end_closes_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, None, 7.0)
    assert list(pair.told(6.75)) == []
    pair.steps()
    assert list(pair.told(6.75)) == [], "its limit begins again"


def test_a_limit_that_is_not_known_may_end_a_wait_until_the_thread_waits_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, None, math.inf)
    assert list(pair.told(60)) == []
    pair.waits()
    assert list(pair.told(6)) == [60 + DEADLOCK_S]


@pytest.mark.parametrize("limit", [0.4, 2.0])
def test_who_asks_again_and_again_with_a_limit_is_in_a_deadlock(monkeypatch: pytest.MonkeyPatch, limit: float) -> None:
    """With the `with` inside of the loop as well as around it: what tells them from who goes on is that no step is taken."""
    pair = Pair(monkeypatch, limit, limit)
    found: list[float] = []
    while pair.now < 110:
        found += pair.told(limit)
        pair.waits()
    assert len(found) == 1
    assert DEADLOCK_S <= found[0] <= DEADLOCK_S + limit + 2 * LOOK_S


def test_a_step_between_two_looks_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """By looks alone the same two edges would stand all the time."""
    pair = Pair(monkeypatch, None, None)
    for _ in range(5):
        assert list(pair.told(3)) == []
        pair.steps()
    assert list(pair.told(6)) != [], "and when no step comes any more it is told"


def test_a_wait_that_is_soon_over_has_no_stack_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, None, None)
    for _ in range(20):
        assert list(pair.told(LIMIT_S - LOOK_S)) == []
        for record in pair.records:
            record.waits = None
        pair.probe.edges()
        pair.waits()
    assert pair.asked == []


def test_a_stack_that_cannot_be_read_leaves_the_wait_as_it_was_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_ident: int) -> float | None:
        raise RecursionError("too deep a source")

    pair = Pair(monkeypatch, None, None)
    monkeypatch.setattr(module, "time_limit", broken)
    assert list(pair.told(20)) == [DEADLOCK_S]
    assert "RecursionError: too deep a source" in capsys.readouterr().err


def test_the_limit_of_a_real_wait_is_seen_and_its_edges_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread in `Event.wait(60)`, and one that waits for it without a limit."""
    end = threading.Event()
    thread = threading.Thread(target=lambda: end.wait(60))
    thread.start()
    try:
        records = Threads()
        for name, ident in (("limited", thread.ident or 0), ("main", threading.get_ident())):
            records.by_ident[ident] = Thread(name, ident, 0, False, "", worker=name)
            other = {"limited": "main", "main": "limited"}[name]
            records.by_ident[ident].waits = Wait("event", lambda other=other: [other])
        scope: Any = SimpleNamespace(threads=records)
        probe = WaitsProbe(scope)
        now = 100.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
        assert [edge.waiter for edge in probe.edges()] == ["limited", "main"]
        now += LIMIT_S
        assert [edge.waiter for edge in probe.edges()] == ["main"]
        now += 60
        assert [edge.waiter for edge in probe.edges()] == ["limited", "main"]
    finally:
        end.set()
        thread.join(10)
