"""A trial of a plan ends once its order cannot come about, and not before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from harness.core.waitgraph import Edge
from harness.subject.stopping import Stopping

CYCLE = [Edge("a", "lock x", "b"), Edge("b", "lock y", "a")]


@pytest.fixture
def worker() -> Iterator[tuple[threading.Thread, threading.Event]]:
    """A thread that ends when its event is set, by the test or after it."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield thread, over
    over.set()
    thread.join()


Worker = tuple[threading.Thread, threading.Event]


def test_it_leaves_workers_behind_whose_plan_is_hopeless(worker: Worker) -> None:
    assert Stopping(True, lambda: True, list).join([worker[0]]) is False
    assert worker[0].is_alive()


def test_it_waits_for_their_ends_where_nobody_asked_for_less(worker: Worker) -> None:
    thread, over = worker
    asked: list[str] = []
    threading.Timer(0.2, over.set).start()
    assert Stopping(False, lambda: bool(asked.append("hopeless")) or True, list).join([thread]) is True
    assert not thread.is_alive()
    assert asked == []  # such a trial pays nothing


def test_it_waits_for_their_ends_while_there_is_hope(worker: Worker) -> None:
    thread, over = worker
    looks = 0

    def hopeless() -> bool:
        nonlocal looks
        looks += 1
        if looks == 5:
            over.set()
        return False

    assert Stopping(True, hopeless, list).join([thread]) is True
    assert looks >= 5


def test_a_circle_of_waits_is_left_to_the_watchdog(worker: Worker) -> None:
    looks = 0

    def edges() -> list[Edge]:
        nonlocal looks
        looks += 1
        return CYCLE if looks <= 5 else []

    assert Stopping(True, lambda: True, edges).join([worker[0]]) is False
    assert looks == 7  # two looks without one: a failure on its way has the time between them


def test_workers_that_have_ended_have_ended_whatever_was_decided() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert Stopping(True, lambda: True, list).join([thread]) is True
