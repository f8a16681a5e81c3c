"""The watchdog of a watched program, in this process: waits that the probes know, and how it comes and goes."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.stuck.views import Diagnosis, Finding, Frame, ThreadView
from harness.core.waitgraph import Edge
from harness.subject.live import Live
from harness.subject.watch import forks, watchdog
from harness.subject.watch.process import Watched
from harness.subject.watch.settings import Settings
from harness.subject.watch.watchdog import WatchDog

WAIT_S = 30.0


class FakeProbes:
    """What the watchdog asks of the probes."""

    def __init__(self) -> None:
        self.found: list[Edge] = []
        self.status: dict[str, str] = {}
        self.looks = 0

    def edges(self) -> list[Edge]:
        self.looks += 1
        return self.found

    def wait_for_looks(self, count: int) -> None:
        """Until so many more have begun."""
        wanted = self.looks + count
        until(lambda: self.looks >= wanted)

    def sample(self) -> None:
        return


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(watchdog, "LOOK_S", 0.02)
    monkeypatch.setattr(watchdog, "DEADLOCK_S", 0.3)
    monkeypatch.setattr(watchdog, "WRITE_S", 0.05)
    made = Watched(Settings(tmp_path, tmp_path, None, False, 60.0, False), tmp_path)
    monkeypatch.setattr(made, "_why", lambda _probes: {})
    yield made
    made.stop()


@pytest.fixture
def probes(watched: Watched) -> FakeProbes:
    fake: Any = FakeProbes()
    watched.probes = fake
    return fake  # type: ignore[no-any-return]


@pytest.fixture
def dog(watched: Watched) -> Iterator[WatchDog]:
    made = WatchDog(watched)
    made.start()
    yield made
    made.stop()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_known_cycle_that_stands_is_told_once(probes: FakeProbes, watched: Watched, dog: WatchDog) -> None:
    probes.found = [
        Edge("drafter-1", "autograd's thread of cuda:0", "autograd-7 (drafter-0)"),
        Edge("autograd-7 (drafter-0)", "torch's compile lock", "drafter-1"),
    ]
    hang = watched.folder / "hang.json"
    until(hang.exists)
    told = json.loads(hang.read_text())
    assert told["label"] == "deadlock"
    for part in ("drafter-1 waits for autograd's thread of cuda:0", "waits for torch's compile lock, held by drafter-1"):
        assert part in told["reason"]
    assert "test_watch_dog.py" in (watched.folder / "stacks.txt").read_text()
    until(lambda: json.loads((watched.folder / "result.json").read_text())["outcomes"] == ["deadlock"])
    probes.wait_for_looks(30)
    assert len(watched.stuck) == 1


def test_a_cycle_that_comes_and_goes_is_none(probes: FakeProbes, watched: Watched, dog: WatchDog) -> None:
    looks = 0

    def edges() -> list[Edge]:
        nonlocal looks
        looks += 1
        return [Edge("a", "a lock", "b"), Edge("b", f"lock {looks // 5}", "a")]

    probes.edges = edges  # type: ignore[method-assign]
    until(lambda: looks > 50)
    assert watched.stuck == []


def test_one_run_of_the_engine_without_end_is_told(watched: Watched, probes: FakeProbes) -> None:
    dog = WatchDog(watched)
    dog._timeout_s = 0.2
    dog._explain = lambda edges, whole: (None, whole)  # type: ignore[method-assign]  # a parallel test run has waiting threads of its own
    thread = watched.threads.current()
    thread.in_engine = 1
    thread.engine_began = 1  # type: ignore[attr-defined]
    dog.start()
    try:
        until(lambda: bool(watched.stuck))
    finally:
        thread.in_engine = 0
        dog.stop()
    assert watched.stuck[0].reason.startswith("MainThread has been in one run of the autograd engine for")


def test_it_is_no_thread_of_the_programs_and_its_failure_is_told(watched: Watched, probes: FakeProbes) -> None:
    before = threading.enumerate()
    dog = WatchDog(watched)
    dog.start()
    assert threading.enumerate() == before

    def fail() -> list[Edge]:
        raise ZeroDivisionError

    probes.edges = fail  # type: ignore[method-assign]
    until(lambda: "ZeroDivisionError" in watched.status.get("watchdog", ""))
    dog.stop()
    dog.stop()


class Door:
    """The lock that every look takes; `knocked` when the watchdog comes to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.release = self._lock.release
        self.knocked = threading.Event()

    def acquire(self, timeout: float) -> bool:
        self.knocked.set()
        return self._lock.acquire(timeout=timeout)


def test_no_look_while_it_is_paused_for_a_fork(
    watched: Watched, probes: FakeProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "would_be_warned_of", lambda: False)
    dog, door = WatchDog(watched), Door()
    dog._looking = door  # type: ignore[assignment]
    dog.start()
    try:
        probes.wait_for_looks(1)
        dog.pause()
        seen = probes.looks
        door.knocked.clear()
        assert door.knocked.wait(WAIT_S), "it comes to its next look"
        assert probes.looks == seen, "and does not begin it"
        dog.resume(None)
        until(lambda: probes.looks > seen)
    finally:
        dog.stop()


def test_its_thread_ends_before_a_fork_that_would_be_warned_of(
    watched: Watched, probes: FakeProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "would_be_warned_of", lambda: True)
    monkeypatch.setattr(forks, "COUNTED_AFTER_HOOKS", False)
    dog = WatchDog(watched)
    dog.start()
    try:
        probes.wait_for_looks(1)
        assert dog._running is not None
        before = dog._running.native_id
        dog.pause()
        assert not Path(f"/proc/self/task/{before}").exists()
        seen = probes.looks
        dog.resume(None)
        until(lambda: probes.looks > seen)
        assert dog._running.native_id != before
    finally:
        dog.stop()
    dog.pause()  # it has ended: there is nothing to begin again
    dog.resume(None)
    assert dog._running is None


def test_what_waits_for_the_return_of_a_fork_is_not_done_within_it() -> None:
    done: list[str] = []

    def fork() -> None:
        forks.once_returned(sys._getframe(1), lambda: done.append("begun again"))
        for _ in range(100_000):  # of a later hook: the interpreter makes pending calls at any turn of a loop
            pass
        done.append("hooks")

    fork()
    until(lambda: len(done) == 2)
    assert done == ["hooks", "begun again"]


def test_the_account_is_written_only_where_something_changed(
    watched: Watched, probes: FakeProbes, dog: WatchDog
) -> None:
    result = watched.folder / "result.json"
    until(lambda: result.exists() and not watched.changed)
    result.unlink()
    probes.wait_for_looks(15)  # several times `WRITE_S`
    assert not result.exists()
    watched.finding("state_leak", "something", key="one")
    until(result.exists)


def view(name: str, ident: int, function: str, **names: Any) -> ThreadView:
    """A thread of the program's own that waits in a function of `threading`."""
    inner = Frame(f"Event.{function}", "/usr/lib/python3.11/threading.py", 1, names.get)
    return ThreadView(name, ident, [inner, Frame("work", "/app/prog.py", 1)], still=True, asleep=True)


@pytest.mark.parametrize("timed", [False, True])
def test_a_clock_that_ticks_says_that_the_process_goes_on(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, timed: bool
) -> None:
    """A loop that does a little each second stands at the same place at each look."""
    limit = {"timeout": Live(1.0, str)} if timed else {}
    threads = [view("ticks", 1, "wait", self=Live(object(), str), **limit), view("waits", 2, "wait", self=Live(object(), str))]
    monkeypatch.setattr("harness.subject.live.threads_now", lambda *_: threads)
    found, whole = WatchDog(watched)._explain([], True)
    assert found is not None
    assert whole is not timed
    assert [finding.threads for finding in found.findings] == ([] if timed else [(1,), (2,)])


def test_a_library_s_thread_that_ticks_is_no_clock_of_the_program(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """As tqdm's monitor does, in programs that hang as a whole."""
    files = ("/usr/lib/python3.11/threading.py", "/usr/lib/python3.11/site-packages/tqdm/_monitor.py")
    inner = Frame("Event.wait", files[0], 1, {"self": Live(object(), str), "timeout": Live(10.0, str)}.get)
    ticks = ThreadView("tqdm_monitor", 1, [inner, Frame("TMonitor.run", files[1], 1)], still=True, asleep=True)
    calls = ThreadView("calls", 2, [Frame("work", "/app/prog.py", 1)], still=True, asleep=True)
    monkeypatch.setattr("harness.subject.live.threads_now", lambda *_: [ticks, calls])
    assert WatchDog(watched)._explain([], True)[1]


def test_what_stands_still_is_looked_at_again_where_something_else_went_on_meanwhile(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    dog = WatchDog(watched)
    dog._timeout_s = 1.0
    found = Diagnosis((), (Finding("cycle", "a waits for b; b waits for a", (1, 2)),))
    monkeypatch.setattr(dog, "_explain", lambda edges, whole: (found, False))
    monkeypatch.setattr(dog, "_whole", lambda *_: False)
    there = iter([False, True])
    stillness: Any = SimpleNamespace(place=lambda ident: (ident, 0), there=lambda idents: next(there))
    for _ in range(3):  # the third finds nothing fresh, and asks nobody
        dog._still(10.0, {1: 0.0, 2: 0.0}, [], stillness)
    assert [one.reason for one in watched.stuck] == ["a waits for b; b waits for a"]
