"""The watchdog: what is a deadlock, what is a hang, and what is merely slow. Time is scaled down, never guessed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.waitgraph import Edge
from harness.subject import watchdog as module
from harness.subject.eventlog import EventLog
from harness.subject.identity import Threads
from harness.subject.watchdog import Watchdog

CYCLE = [Edge("a", "lock 1", "b"), Edge("b", "lock 2", "a")]


class Watched:
    def __init__(self, folder: Path, timeout_s: float, edges: Callable[[], list[Edge]], compiling: bool, **more: float) -> None:
        self.stuck = threading.Event()
        self.found: tuple[str, str] | None = None
        self.folder = folder
        self.log = EventLog(folder, Threads())
        self.log.emit("subject.start")
        self.stacks = open(folder / "stacks.txt", "w")  # noqa: SIM115
        self.dog = Watchdog(folder, self.log, self.stacks, timeout_s, edges, lambda: compiling, self._on_stuck, **more)
        self.dog.start()

    def _on_stuck(self, label: str, reason: str) -> None:
        self.found = (label, reason)
        self.stuck.set()

    def end(self) -> None:
        self.dog.stop()
        self.log.close()
        self.stacks.close()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)


def test_a_standing_cycle_is_a_deadlock_with_its_edges_and_stacks(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 60, lambda: CYCLE, compiling=False, deadlock_s=0.1)
    assert watched.stuck.wait(10)
    watched.end()
    assert watched.found is not None
    assert watched.found[0] == "deadlock"
    assert "a waits for lock 1, held by b; b waits for lock 2, held by a" in watched.found[1]
    assert json.loads((tmp_path / "hang.json").read_text())["label"] == "deadlock"
    assert "test_subject_watchdog.py" in (tmp_path / "stacks.txt").read_text()


def test_a_cycle_that_changes_is_contention(tmp_path: Path) -> None:
    looks = 0
    enough = threading.Event()

    def edges() -> list[Edge]:
        nonlocal looks
        looks += 1
        if looks >= 60:
            enough.set()
        return CYCLE if looks % 5 else []

    watched = Watched(tmp_path, 60, edges, compiling=False)
    assert enough.wait(20)
    watched.end()
    assert watched.found is None
    assert not (tmp_path / "hang.json").exists()


def test_silence_is_a_hang_and_says_who_waits(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 0.2, lambda: [Edge("a", "lock 1", "b")], compiling=False)
    assert watched.stuck.wait(10)
    watched.end()
    assert watched.found is not None
    assert watched.found[0] == "hang"
    assert "a waits for lock 1, held by b" in watched.found[1]


def test_a_cycle_that_the_probes_know_is_told_at_the_silence_without_reading_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources are read for an explanation from stacks, which takes a loaded machine longer than a hang may go untold."""
    monkeypatch.setattr(module, "explain_hang", lambda *_: pytest.fail("the stacks were asked"))
    behind = Edge("c", "lock 1", "b")
    watched = Watched(tmp_path, 0.2, lambda: [*CYCLE, behind], compiling=True, deadlock_s=600)
    assert watched.stuck.wait(10)
    watched.end()
    assert watched.found is not None
    assert watched.found[0] == "deadlock"
    assert watched.found[1].endswith(
        "a waits for lock 1, held by b; b waits for lock 2, held by a; c waits for lock 1, held by b"
    )


def test_a_compile_may_be_silent_longer(tmp_path: Path) -> None:
    enough = threading.Event()

    def edges() -> list[Edge]:
        if watched.log.now_ns() - watched.log.last_ns > 0.4e9:  # twice the timeout, half of what a compile may take
            enough.set()
        return []

    watched = Watched.__new__(Watched)
    Watched.__init__(watched, tmp_path, 0.2, edges, compiling=True)
    assert enough.wait(10)
    assert watched.found is None
    assert watched.stuck.wait(10), "but not for ever"
    watched.end()


def test_events_keep_it_quiet_and_the_heartbeat_beats(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 1.0, list, compiling=False)
    beats = set()
    for _ in range(100):
        watched.log.emit("x")
        heartbeat = tmp_path / "heartbeat"
        if heartbeat.exists():
            beats.add(heartbeat.stat().st_mtime_ns)
        watched.stuck.wait(0.02)
    watched.end()
    assert watched.found is None
    assert len(beats) > 5
