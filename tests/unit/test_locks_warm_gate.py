"""`warm_gate`: a gate by key, and a barrier behind each worker's first good step."""

from __future__ import annotations

import pytest
from locks_support import LIMIT, Stage

from harness.locks import StrategyAborted

K1, K2 = ("code", "cuda:0", (4, 8)), ("code", "cuda:0", (4, 16))


def test_new_keys_take_turns_and_then_all_wait_for_each_other() -> None:
    with Stage("warm_gate", workers=["a", "b"]) as stage:
        stage.enter("a", "step", key=K1)
        second = stage.blocked("b", "step", key=K2)
        leaving = stage.begin_leave("a", "step")
        second.result(LIMIT)
        stage.log.expect("barrier.wait", "a")
        assert not leaving.done(), "b has not done its first step"
        assert stage.holders() == ("b",), "the gate is free while a waits"
        stage.leave("b", "step")
        leaving.result(LIMIT)
        stage.enter("a", "step", key=K1)
        stage.enter("b", "step", key=K2)
        assert stage.holders() == ("a", "b")


def test_a_known_key_stands_in_no_line() -> None:
    """The third worker's code was compiled by the first: it shares its first step."""
    with Stage("warm_gate", workers=["a", "b", "c"]) as stage:
        stage.enter("a", "step", key=K1)
        first = stage.begin_leave("a", "step")
        stage.log.expect("barrier.wait", "a")
        stage.enter("b", "step", key=K1)
        stage.enter("c", "step", key=K1)
        assert stage.holders() == ("b", "c")
        others = [stage.begin_leave(worker, "step") for worker in "bc"]
        for leaving in (first, *others):
            leaving.result(LIMIT)


def test_later_keys_are_exclusive_without_a_barrier() -> None:
    with Stage("warm_gate", workers=["a"]) as stage:
        stage.through("a", "step", key=K1)
        stage.enter("a", "step", key=K2)
        assert stage.state().holders == ("a",)
        stage.leave("a", "step")
        assert "barrier.wait" not in stage.log.of("a"), "nobody else is there to wait for"


def test_a_failed_first_step_is_not_the_first() -> None:
    with Stage("warm_gate", workers=["a", "b"]) as stage:
        stage.enter("a", "step", key=K1)
        stage.leave("a", "step", error=ValueError("a bad batch"))
        stage.enter("a", "step", key=K1)
        leaving = stage.begin_leave("a", "step")
        stage.log.expect("barrier.wait", "a")
        stage.strategy.worker_done("b")
        leaving.result(LIMIT)


def test_abort_ends_the_wait_at_the_barrier() -> None:
    with Stage("warm_gate", workers=["a", "b"]) as stage:
        stage.enter("a", "step", key=K1)
        leaving = stage.begin_leave("a", "step")
        stage.log.expect("barrier.wait", "a")
        stage.strategy.abort()
        with pytest.raises(StrategyAborted):
            leaving.result(LIMIT)


def test_an_inner_pass_is_not_the_end_of_the_step() -> None:
    """An engine thread re-enters its worker's step: the barrier is behind the outer one."""
    with Stage("warm_gate", workers=["a", "b"]) as stage:
        stage.enter("a", "step", key=K1)
        stage.through("a!", "step", key=K1)
        assert "barrier.wait" not in stage.log.of("a")
        leaving = stage.begin_leave("a", "step")
        stage.log.expect("barrier.wait", "a")
        stage.strategy.worker_done("b")
        leaving.result(LIMIT)
