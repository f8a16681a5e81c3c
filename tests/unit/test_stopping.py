"""A trial of a plan ends once its order cannot come about, and not while anything else may be about to go wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.subject.context import TrialContext
from harness.subject.identity import Threads
from harness.subject.record import Trial
from harness.subject.stopping import CALM, Stopping

Worker = tuple[threading.Thread, threading.Event]


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A thread that ends when its event is set, by the test or after it."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield thread, over
    over.set()
    thread.join()


def stopping(wanted: bool = True, hopeless: bool = True, failing: bool = False) -> Stopping:
    return Stopping(wanted, lambda: hopeless, lambda: failing)


def look(at: Stopping, times: int = CALM, *, circle: bool = False, moving: bool = True) -> Stopping:
    for _ in range(times):
        at.looked(circle, moving)
    return at


def joins(at: Stopping, worker: Worker) -> bool:
    """Whether it waits for the end of the worker, which comes a little later."""
    thread, over = worker
    ending = threading.Timer(0.2, over.set)
    ending.start()
    try:
        return at.join([thread])
    finally:
        ending.join()


def test_it_leaves_workers_behind_whose_plan_is_hopeless(worker: Worker) -> None:
    assert look(stopping()).join([worker[0]]) is False
    assert worker[0].is_alive()


def test_it_waits_for_their_ends_where_nobody_asked_for_less(worker: Worker) -> None:
    assert joins(look(stopping(wanted=False), 20), worker)


def test_it_waits_for_their_ends_while_there_is_hope(worker: Worker) -> None:
    assert joins(look(stopping(hopeless=False), 20), worker)


def test_one_look_is_not_enough(worker: Worker) -> None:
    """What has gone wrong by the time that the plan is decided has until the next one to show."""
    assert joins(look(stopping(), CALM - 1), worker)


@pytest.mark.parametrize("found", [{"circle": True}, {"moving": False}])
def test_a_circle_of_waits_and_a_silence_are_left_to_the_watchdog(worker: Worker, found: dict[str, bool]) -> None:
    at = look(stopping(), 20, **found)
    look(at, CALM - 1)
    look(at, 1, **found)  # calm looks count in a row only
    look(at, CALM - 1)
    assert joins(at, worker)


def test_an_exception_on_its_way_is_awaited(worker: Worker) -> None:
    assert joins(look(stopping(failing=True), 20), worker)


def test_workers_that_have_ended_have_ended_whatever_was_decided(worker: Worker) -> None:
    thread, over = worker
    over.set()
    thread.join()
    assert look(stopping()).join([thread]) is True


class Log:
    """Keeps nothing."""

    def emit(self, kind: str, extra: str = "") -> int:
        return 1

    def now_ns(self) -> int:
        return 1


def test_an_exception_is_on_its_way_from_its_first_region_until_it_is_told_of() -> None:
    from harness import locks

    threads = Threads()
    given: Any = ({}, locks.make_strategy("none", workers=("w",)), Log(), threads, Trial())
    context = TrialContext(*given)
    seen: list[bool] = []

    def fails() -> None:
        with context.region("step", "w"), context.region("forward", "w"):
            raise RuntimeError("of the race")

    with pytest.raises(RuntimeError) as caught:
        fails()
    seen.append(threads.failing())
    context.step_failed("w", caught.value)
    seen.append(threads.failing())
    with pytest.raises(RuntimeError):
        fails()
    with context.region("step", "w"):  # nobody told of it, and the worker goes on
        seen.append(threads.failing())
    assert seen == [True, False, False]
