"""`compile_gate` and `every_step`: steps that are exclusive, or shared where their key is known."""

from __future__ import annotations

import pytest
from locks_support import LIMIT, Stage

from harness.locks import make_strategy

K1, K2, K3 = ("code", "cuda:0", (4, 8)), ("code", "cuda:0", (4, 16)), ("code", "cuda:1", (4, 8))


def knowing(*keys: object, owner: str = "worker") -> Stage:
    """A gate to which these keys are known."""
    stage = Stage("compile_gate", workers=list("abcde"), owner=owner)
    for key in keys:
        stage.through("e", "step", key=key)
    stage.log.events.clear()
    return stage


def test_a_new_key_is_exclusive_and_known_afterwards() -> None:
    with knowing() as stage:
        stage.enter("a", "step", key=K1)
        waiting = stage.blocked("b", "step", key=K2)
        stage.leave("a", "step")
        waiting.result(LIMIT)
        third = stage.blocked("c", "step", key=K1)  # known, but b is exclusive
        stage.leave("b", "step")
        third.result(LIMIT)
        stage.enter("a", "step", key=K2)  # shared with c
        assert stage.holders() == ("c", "a")


def test_known_keys_share_and_other_regions_are_free() -> None:
    with knowing(K1, K2) as stage:
        stage.enter("a", "step", key=K1)
        stage.enter("b", "step", key=K2)
        stage.enter("a", "mask", "forward", "attention")
        stage.enter("b", "mask", "forward", "attention")
        assert stage.holders() == ("a", "b")
        stage.enter("c", "backward")
        assert "wait" not in [event for event, _, _ in stage.log.events]


def test_a_new_key_waits_for_the_shared_ones_and_keeps_later_ones_behind_it() -> None:
    with knowing(K1) as stage:
        stage.enter("a", "step", key=K1)
        stage.enter("b", "step", key=K1)
        new = stage.blocked("c", "step", key=K2)
        assert (stage.holders(), stage.state().waiters) == (("a", "b"), ("c",))
        stage.leave("a", "step")
        again = stage.blocked("a", "step", key=K1)  # would starve c if it were let in
        stage.leave("b", "step")
        new.result(LIMIT)
        assert not again.done()
        stage.leave("c", "step")
        again.result(LIMIT)


def test_two_workers_with_one_new_key_only_one_is_exclusive() -> None:
    with knowing(K1) as stage:
        stage.enter("a", "step", key=K2)
        second = stage.blocked("b", "step", key=K2)
        third = stage.blocked("c", "step", key=K2)
        other = stage.blocked("d", "step", key=K1)
        stage.leave("a", "step")
        for entering in (second, third, other):  # all share, for K2 became known while they waited
            entering.result(LIMIT)
        assert stage.holders() == ("b", "c", "d")
        stage.enter("a", "step", key=K2)


def test_a_failed_step_leaves_its_key_unknown() -> None:
    with knowing() as stage:
        stage.enter("a", "step", key=K1)
        second = stage.blocked("b", "step", key=K1)
        third = stage.blocked("c", "step", key=K1)
        stage.leave("a", "step", error=ValueError())
        second.result(LIMIT)
        assert stage.holders() == ("b",)  # exclusive in its turn
        stage.leave("b", "step")
        third.result(LIMIT)
        stage.enter("a", "step", key=K1)


def test_a_failed_shared_step_does_not_make_its_key_unknown() -> None:
    with knowing(K1) as stage:
        stage.enter("a", "step", key=K1)
        stage.leave("a", "step", error=ValueError())
        stage.enter("a", "step", key=K1)
        stage.enter("b", "step", key=K1)


def test_a_hold_is_never_upgraded() -> None:
    with knowing(K1) as stage:
        stage.enter("a", "step", key=K1)
        stage.enter("b", "step", key=K1)
        stage.enter("a!", "step", key=K2)  # inside a's own hold: waiting for b here could be a deadlock
        stage.leave("a!", "step")
        stage.leave("a", "step")
        stage.leave("b", "step")
        stage.enter("a", "step", key=K2)
        stage.blocked("b", "step", key=K1)  # nor has the shared pass made K2 known


def test_without_a_key_a_step_is_exclusive_every_time() -> None:
    with knowing(K1) as stage:
        stage.through("a", "step")
        stage.enter("b", "step", key=K1)
        waiting = stage.blocked("a", "step")
        stage.leave("b", "step")
        waiting.result(LIMIT)
        stage.blocked("b", "step", key=K1)


def test_a_key_that_cannot_be_hashed_is_refused_and_harms_nobody() -> None:
    with knowing() as stage:
        with pytest.raises(TypeError, match="unhashable"):
            stage.begin_enter("a", "step", key=[1]).result(LIMIT)
        assert stage.holders() == ()
        stage.enter("b", "step", key=K1)


def test_threads_own_the_gate_if_told_to() -> None:
    with knowing(K1, owner="thread") as stage:
        stage.enter("a", "step", key=K1)
        stage.enter("a!", "step", key=K1)
        assert stage.holders() == ("a", "a")
        stage.blocked("b", "step", key=K2)
        stage.enter("a", "mask")


def test_a_worker_that_ends_inside_a_step_opens_the_gate_and_knows_nothing() -> None:
    with knowing() as stage:
        stage.enter("a", "step", key=K1)
        waiting = stage.blocked("b", "step", key=K2)
        stage.strategy.worker_done("a")
        waiting.result(LIMIT)
        stage.leave("a", "step")  # late: takes nothing from b, and is no second release
        assert stage.holders() == ("b",)
        assert stage.log.of("a") == ["acquired", "released"]
        stage.leave("b", "step")
        stage.enter("a", "step", key=K1)
        stage.blocked("b", "step", key=K2)  # so a is exclusive


def test_nor_does_it_without_an_observer() -> None:
    strategy = make_strategy("compile_gate", workers=["a", "b"])
    with strategy.region("step", "a", K1):
        strategy.worker_done("a")
        entered = strategy.region("step", "b", K2)
        entered.__enter__()
    assert strategy.wait_graph()[0].holders == ("b",)
    entered.__exit__(None, None, None)
    assert strategy.wait_graph()[0].holders == ()


def test_every_step_is_exclusive_whatever_its_key() -> None:
    with Stage("every_step") as stage:
        for _ in range(2):
            stage.enter("a", "step", key=K1)
            stage.enter("b", "mask")
            waiting = stage.blocked("b", "step", key=K1)
            stage.through("a!", "forward", "attention", "step")  # its own hold
            assert stage.holders() == ("a",)
            stage.leave("a", "step")
            waiting.result(LIMIT)
            stage.leave("b", "step")
