"""This process's own threads: what is read of objects without running their code."""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness.subject.live import Live, explain_hang, frames_of, threads_now, time_limit


class Plain:
    shared = threading.Lock()

    def __init__(self) -> None:
        self.lock = threading.Lock()

    @property
    def trap(self) -> object:
        raise AssertionError("a property was run")

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"__getattr__({name}) was run")


class Slots:
    __slots__ = ("empty", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


def nobody(_ident: int) -> str:
    return ""


def test_attributes_come_from_dictionaries_slots_and_classes_only() -> None:
    plain, slots = Plain(), Slots()
    assert Live(plain, nobody).attribute("lock").value is plain.lock  # type: ignore[union-attr]
    assert Live(plain, nobody).attribute("shared").value is Plain.shared  # type: ignore[union-attr]
    assert Live(Plain, nobody).attribute("shared").value is Plain.shared  # type: ignore[union-attr]
    assert Live(slots, nobody).attribute("lock").value is slots.lock  # type: ignore[union-attr]
    assert Live(threading, nobody).attribute("Lock").value is threading.Lock  # type: ignore[union-attr]
    for value, name in ((plain, "trap"), (plain, "missing"), (slots, "empty"), (slots, "missing")):
        assert Live(value, nobody).attribute(name) is None


@pytest.mark.parametrize(
    ("items", "index", "there"), [([1, 2], 1, True), ([1], 5, False), ({"a": 2}, "a", True), ("ab", 0, False)]
)
def test_items_of_plain_containers(items: object, index: object, there: bool) -> None:
    assert (Live(items, nobody).item(Live(index, nobody)) is not None) is there


def test_the_owner_of_a_reentrant_lock_and_of_a_condition() -> None:
    lock, condition = threading.RLock(), threading.Condition()
    assert Live(lock, nobody).fact("owner") is None
    with lock, condition:
        assert Live(lock, nobody).fact("owner") == threading.get_ident()
        assert Live(condition, nobody).fact("owner") == threading.get_ident()
    assert Live(threading.Barrier(3), nobody).fact("parties") == 3
    assert Live(threading.current_thread(), nobody).fact("ident") == threading.get_ident()


def test_frames_know_locals_globals_and_the_instruction() -> None:
    here = "a local"
    found = frames_of(sys._getframe(), nobody)[0]
    assert found.function.endswith("test_frames_know_locals_globals_and_the_instruction")
    assert found.names("here").value is here  # type: ignore[union-attr]
    assert found.names("Plain").value is Plain  # type: ignore[union-attr]
    assert found.names("no_such_name") is None
    assert found.span is not None
    assert found.span[0] == found.line


@contextmanager
def blocked(lock: threading.Lock, name: str) -> Iterator[threading.Thread]:
    """A thread that waits for `lock`, which this one holds."""
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        with lock:
            pass

    with lock:
        thread = threading.Thread(target=wait, name=name)
        thread.start()
        assert begun.wait(10)
        yield thread
    thread.join(10)


@pytest.mark.skipif(sys.platform != "linux", reason="processor time by thread is read from /proc")
def test_a_thread_that_waits_sleeps_and_one_that_works_does_not() -> None:
    stopped: list[bool] = []

    def work() -> None:
        while not stopped:
            pass  # met at the one jump of the loop, whenever it gives the interpreter away

    worker = threading.Thread(target=work, name="worker")
    worker.start()
    try:
        with blocked(threading.Lock(), "waiter"):
            for _ in range(20):  # on a machine that does other work it may not run for a while
                threads = {thread.name: thread for thread in threads_now(nobody, (), pause_s=0.2)}
                if threads["waiter"].still and threads["waiter"].asleep and threads["worker"].asleep is False:
                    return
    finally:
        stopped.append(True)
        worker.join(10)
    raise AssertionError("never seen so")


def test_a_healthy_wait_is_explained_and_is_no_finding_of_a_cycle() -> None:
    lock = threading.Lock()
    with blocked(lock, "waiter") as thread:
        for _ in range(20):
            found = explain_hang(nobody, [], leave_out=())
            waits = {wait.thread.name: wait for wait in found.waits}
            if "waiter" in waits:
                break
        assert thread.is_alive()
    assert "lock `lock`" in waits["waiter"].what
    assert not [finding for finding in found.findings if finding.kind == "cycle"]


def test_a_name_is_given_to_an_owner_that_has_ended() -> None:
    lock = threading.RLock()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join(10)
    owner = Live(lock, lambda ident: f"name of {ident}").fact("owner name")
    assert owner == f"name of {thread.ident}"


SECONDS = 61.5
ITEMS = queue.Queue[int]()
BARRIER = threading.Barrier(2, timeout=SECONDS)
CONDITION, READY = threading.Condition(), threading.Event()
TAKEN = threading.Lock()
TAKEN.acquire()
EMPTY = queue.SimpleQueue[int]()
EVENT = threading.Event()


def from_queue() -> None:
    ITEMS.get(timeout=SECONDS)


def from_queue_by_place() -> None:
    ITEMS.get(True, 62)


def at_a_barrier_with_a_limit_of_its_own() -> None:
    BARRIER.wait()


def for_a_predicate() -> None:
    with CONDITION:
        CONDITION.wait_for(READY.is_set, SECONDS)


def make_ready() -> None:
    READY.set()
    with CONDITION:
        CONDITION.notify_all()


def for_a_lock() -> None:
    TAKEN.acquire(timeout=63)


def for_a_lock_by_place() -> None:
    TAKEN.acquire(True, 63.5)


def for_a_lock_by_a_variable() -> None:
    TAKEN.acquire(timeout=SECONDS)


def from_a_queue_in_c() -> None:
    EMPTY.get(timeout=64)


def for_an_event_without() -> None:
    EVENT.wait(None)


def for_a_lock_without() -> None:
    TAKEN.acquire(True, -1)


LIMITS: list[tuple[Callable[[], None], float | None, Callable[[], object]]] = [
    (from_queue, SECONDS, lambda: ITEMS.put(1)),
    (from_queue_by_place, 62.0, lambda: ITEMS.put(1)),
    (at_a_barrier_with_a_limit_of_its_own, SECONDS, BARRIER.wait),
    (for_a_predicate, SECONDS, make_ready),
    (for_a_lock, 63.0, TAKEN.release),  # the thread takes it then
    (for_a_lock_by_place, 63.5, TAKEN.release),
    (for_a_lock_by_a_variable, math.inf, TAKEN.release),
    (from_a_queue_in_c, 64.0, lambda: EMPTY.put(1)),
    (for_an_event_without, None, EVENT.set),
    (for_a_lock_without, None, TAKEN.release),
]


@pytest.mark.parametrize(("wait", "limit", "end"), LIMITS, ids=[wait.__name__ for wait, *_ in LIMITS])
def test_the_time_limit_of_a_wait(wait: Callable[[], None], limit: float | None, end: Callable[[], object]) -> None:
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        assert stands_in_a_wait(thread)
        assert time_limit(thread.ident or 0) == limit
    finally:
        end()
        thread.join(20)
    assert not thread.is_alive()


def stands_in_a_wait(thread: threading.Thread) -> bool:
    """Within 10 s, by two looks at its stack."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        found = next(found for found in threads_now(nobody, (), pause_s=0.05) if found.ident == thread.ident)
        if found.still and found.asleep is not False and len(found.frames) > 2:
            return True
    return False


def test_a_thread_that_waits_in_nothing_or_has_ended_has_no_limit() -> None:
    assert time_limit(threading.get_ident()) is None
    assert time_limit(0) is None


def test_what_the_program_s_own_frames_hold_is_not_kept_by_a_look_for_a_limit() -> None:
    """Up to Python 3.12 a frame whose variables were asked for keeps them until it ends or is asked again."""
    class Large:
        pass

    lock, looked, dropped = threading.Lock(), threading.Event(), threading.Event()
    refs: list[weakref.ref[Large]] = []

    def run() -> None:
        large = Large()
        refs.append(weakref.ref(large))
        lock.acquire(timeout=60)
        del large
        dropped.set()
        looked.wait(60)

    lock.acquire()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert stands_in_a_wait(thread)
        assert time_limit(thread.ident or 0) == 60.0
        lock.release()
        assert dropped.wait(10)
        assert refs[0]() is None
    finally:
        looked.set()
        thread.join(10)
