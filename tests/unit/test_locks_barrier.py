"""`warmup_barrier`: `first_step`, and nobody goes on until all live workers have done theirs."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from locks_support import LIMIT, Stage

from harness.locks import LockState, StrategyAborted

OOPS = ValueError("oops")


def first_span(stage: Stage, worker: str) -> None:
    """Up to the end of the span, where the barrier is."""
    stage.enter(worker, "step")
    stage.through(worker, "mask", "forward", "loss")
    stage.enter(worker, "backward")


def arrive(stage: Stage, worker: str) -> Future[Any]:
    """Does the first span, and must then wait at the barrier."""
    first_span(stage, worker)
    leaving = stage.begin_leave(worker, "backward")
    stage.log.expect("barrier.wait", worker)
    assert not leaving.done()
    return leaving


def test_nobody_goes_on_until_all_are_done() -> None:
    with Stage("warmup_barrier") as stage:
        first = arrive(stage, "a")
        assert stage.state("barrier") == LockState("barrier", ("b", "c"), ("a",))
        assert stage.state("strategy") == LockState("strategy", (), ())  # waits with empty hands
        second = arrive(stage, "b")  # and so this one gets the lock
        assert stage.state("barrier") == LockState("barrier", ("c",), ("a", "b"))
        assert not first.done()
        first_span(stage, "c")
        stage.leave("c", "backward")  # the last does not wait
        first.result(LIMIT)
        second.result(LIMIT)
        assert stage.state("barrier") == LockState("barrier", (), ())
        assert stage.log.of("a") == ["acquired", "released", "barrier.wait", "barrier.leave"]
        assert stage.log.of("c") == ["acquired", "released"]


def test_only_the_first_span_waits() -> None:
    with Stage("warmup_barrier", workers=["a", "b"]) as stage:
        first = arrive(stage, "a")
        first_span(stage, "b")
        stage.leave("b", "backward")
        first.result(LIMIT)
        for worker in ("a", "b"):
            stage.leave(worker, "step")
            first_span(stage, worker)
            stage.leave(worker, "backward", "step")


def test_a_worker_that_failed_before_the_others_arrived_is_not_waited_for() -> None:
    with Stage("warmup_barrier", workers=["a", "b"]) as stage:
        stage.enter("b", "step", "mask")
        stage.leave("b", "mask", "step", error=OOPS)
        stage.strategy.worker_done("b")
        first_span(stage, "a")
        stage.leave("a", "backward")


def test_a_worker_that_dies_while_others_wait_lets_them_go() -> None:
    with Stage("warmup_barrier") as stage:
        first, second = arrive(stage, "a"), arrive(stage, "b")
        stage.enter("c", "step", "mask")
        stage.leave("c", "mask", "step", error=OOPS)
        assert not first.done()
        assert not second.done()
        stage.strategy.worker_done("c")
        first.result(LIMIT)
        second.result(LIMIT)


def test_a_worker_that_fails_and_tries_again_is_waited_for() -> None:
    with Stage("warmup_barrier", workers=["a", "b"]) as stage:
        first = arrive(stage, "a")
        first_span(stage, "b")
        stage.leave("b", "backward", "step", error=OOPS)
        assert stage.state("barrier") == LockState("barrier", ("b",), ("a",))
        first_span(stage, "b")
        assert not first.done()
        stage.leave("b", "backward")
        first.result(LIMIT)


def test_a_worker_that_fails_after_its_first_span_changes_nothing() -> None:
    with Stage("warmup_barrier") as stage:
        first = arrive(stage, "a")
        second = arrive(stage, "b")
        stage.strategy.worker_done("b")  # said by a supervisor, while b waits: b may go and end
        second.result(LIMIT)
        assert stage.state("barrier") == LockState("barrier", ("c",), ("a",))
        assert not first.done()
        stage.strategy.worker_done("c")
        first.result(LIMIT)


def test_a_worker_that_was_not_named_is_locked_but_takes_no_part() -> None:
    with Stage("warmup_barrier", workers=["a", "b"]) as stage:
        first_span(stage, "main")
        waiting = stage.blocked("a", "mask")
        stage.leave("main", "backward", "step")  # does not wait, for nobody would ever wait for it
        waiting.result(LIMIT)
        assert stage.state("barrier").holders == ("a", "b")


def test_abort_ends_the_wait_and_those_to_come() -> None:
    with Stage("warmup_barrier") as stage:
        first = arrive(stage, "a")
        stage.strategy.abort()
        with pytest.raises(StrategyAborted, match="a was waiting at the barrier"):
            first.result(LIMIT)
        first_span(stage, "b")
        with pytest.raises(StrategyAborted):
            stage.begin_leave("b", "backward").result(LIMIT)
        assert stage.state("barrier") == LockState("barrier", ("c",), ())


def test_threads_own_the_lock_but_workers_arrive() -> None:
    with Stage("warmup_barrier", workers=["a", "b"], owner="thread") as stage:
        first = arrive(stage, "a")
        first_span(stage, "b")
        stage.leave("b", "backward")
        first.result(LIMIT)
