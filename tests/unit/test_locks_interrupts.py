"""An interrupt at an unlucky bytecode, and a key whose comparison raises: nobody else is locked out for good."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

from harness import locks
from harness.locks import Strategy, make_strategy

EXCLUSIVE = ("every_step", "compile_gate", "warm_gate", "each:step")
WAIT_S = 20.0


class Interrupt(BaseException):
    """As a signal's handler raises it."""


def interrupted_at(code: CodeType, act: Callable[[], object], nth: int = 1) -> None:
    """Does `act`, with an interrupt where this thread enters the function for the `nth` time."""
    left = nth

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        if event == "call" and frame.f_code is code:
            left -= 1
            if not left:
                sys.settrace(None)
                raise Interrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(Interrupt):
            act()
    finally:
        sys.settrace(before)


def one_step(strategy: Strategy, worker: str) -> None:
    with strategy.region("step", worker):
        pass


def can_step(strategy: Strategy, worker: str) -> bool:
    """Whether another thread gets through a step."""
    thread = threading.Thread(target=one_step, args=(strategy, worker), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    strategy.abort()
    return not thread.is_alive()


def empty(strategy: Strategy) -> bool:
    return not any(state.holders or state.waiters for state in strategy.wait_graph() if state.name != "barrier")


@pytest.mark.parametrize("name", EXCLUSIVE)
def test_an_interrupt_while_a_hold_is_made_leaves_nothing(name: str) -> None:
    strategy = make_strategy(name, workers=["a"])
    interrupted_at(locks._Hold.__init__.__code__, lambda: one_step(strategy, "a"))
    assert empty(strategy)
    assert can_step(strategy, "b")


@pytest.mark.parametrize("name", EXCLUSIVE)
def test_an_interrupt_before_the_wait_leaves_no_place_in_the_queue(name: str) -> None:
    strategy = make_strategy(name, workers=["a", "b"])
    held, over = threading.Event(), threading.Event()

    def holds() -> None:
        with strategy.region("step", "b"):
            held.set()
            over.wait(WAIT_S)
        strategy.worker_done("b")

    holder = threading.Thread(target=holds, daemon=True)
    strategy.worker_done("b")  # so that no barrier waits for it
    holder.start()
    assert held.wait(WAIT_S)
    interrupted_at(locks._FairLock._wait.__code__, lambda: one_step(strategy, "a"))
    strategy.worker_done("a")
    over.set()
    holder.join(WAIT_S)
    assert empty(strategy)
    assert can_step(strategy, "c")


def test_a_release_that_was_interrupted_is_finished_by_worker_done() -> None:
    strategy = make_strategy("every_step", workers=["a", "b"])
    waits, through = threading.Event(), threading.Event()

    def waits_for_it() -> None:
        waits.set()
        one_step(strategy, "b")
        through.set()

    waiter = threading.Thread(target=waits_for_it, daemon=True)

    def step() -> None:
        with strategy.region("step", "a"):
            waiter.start()
            assert waits.wait(WAIT_S)
            while not any(state.waiters for state in strategy.wait_graph()):
                pass

    interrupted_at(locks._FairLock._grant.__code__, step)
    assert not through.is_set()
    strategy.worker_done("a")
    assert through.wait(WAIT_S)
    assert empty(strategy)


class Odd:
    """Equal to nothing, and loud about it; all of them have one hash."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")


def test_a_key_that_cannot_be_compared_fails_its_own_worker_alone() -> None:
    strategy = make_strategy("compile_gate", workers=[])
    inside, failed = threading.Event(), {}

    def steps(worker: str, begin: threading.Event | None) -> None:
        try:
            if begin is not None:
                assert begin.wait(WAIT_S)
            with strategy.region("step", worker, key=Odd()):
                inside.set()
                while begin is None and sum(len(state.waiters) for state in strategy.wait_graph()) < 2:
                    pass
        except ValueError as error:
            failed[worker] = error
        finally:
            strategy.worker_done(worker)

    threads = [threading.Thread(target=steps, args=(name, begin), daemon=True) for name, begin in
               (("first", None), ("second", inside), ("third", inside))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert "first" not in failed
    assert empty(strategy)
