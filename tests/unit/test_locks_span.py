"""`span:`, `per_forward`, `first_step`: one hold over several regions, until it was done once."""

from __future__ import annotations

import pytest
from locks_support import LIMIT, Stage

OOPS = ValueError("oops")


@pytest.mark.parametrize(
    ("name", "before", "held", "after"),
    [
        ("per_forward", ["step"], ["mask", "forward"], ["loss", "backward"]),
        ("first_step", ["step"], ["mask", "forward", "loss", "backward"], []),
        ("span:mask..backward", ["step"], ["mask", "forward", "loss", "backward"], []),
        ("span:forward..loss", ["step", "mask"], ["forward", "loss"], ["backward"]),
        ("span:backward..backward", ["step", "mask", "forward", "loss"], ["backward"], []),
    ],
)
def test_held_from_the_first_region_to_the_end_of_the_last(
    name: str, before: list[str], held: list[str], after: list[str]
) -> None:
    with Stage(name) as stage:
        stage.enter("a", "step")
        stage.through("a", *before[1:])
        assert stage.holders() == ()
        for region in held:
            stage.enter("a", region)
            assert stage.holders() == ("a",)
            if region == "forward":
                stage.through("a", "attention")
            if region != held[-1]:
                stage.leave("a", region)
                assert stage.holders() == ("a",)  # between the regions too
        waiting = stage.blocked("b", held[0])
        stage.leave("a", held[-1])
        waiting.result(LIMIT)
        stage.through("a", *after)
        stage.leave("a", "step")
        stage.enter("a", "step")  # warm from now on: b holds and a passes
        stage.through("a", *before[1:], *held, *after)
        stage.leave("a", "step")
        assert stage.holders() == ("b",)
        assert stage.log.of("a") == ["acquired", "released"]


@pytest.mark.parametrize("failing", ["mask", "forward", "loss", "backward"])
def test_an_exception_in_any_region_releases_and_leaves_cold(failing: str) -> None:
    order = ["mask", "forward", "loss", "backward"]
    with Stage("first_step") as stage:
        stage.enter("a", "step")
        stage.through("a", *order[: order.index(failing)])
        stage.enter("a", failing)
        waiting = stage.blocked("b", "mask")
        stage.leave("a", failing, error=OOPS)
        waiting.result(LIMIT)
        stage.leave("a", "step", error=OOPS)
        assert stage.log.of("a") == ["acquired", "released"]
        stage.enter("a", "step")
        stage.blocked("a", "mask")  # cold


def test_an_exception_that_leaves_only_a_nested_region_ends_the_span_too() -> None:
    with Stage("first_step") as stage:
        stage.enter("a", "step")
        stage.through("a", "mask")
        stage.enter("a", "forward", "attention")
        stage.leave("a", "attention", error=OOPS)  # the caller falls back to something else inside forward
        assert stage.holders() == ()
        stage.leave("a", "forward")
        stage.through("a", "loss", "backward")
        stage.leave("a", "step")
        stage.enter("b", "mask")
        stage.blocked("a", "mask")  # cold


def test_an_exception_on_an_engine_thread_ends_the_span_of_its_worker() -> None:
    with Stage("first_step") as stage:
        stage.enter("a", "step")
        stage.through("a", "mask", "forward", "loss")
        stage.enter("a", "backward")
        stage.enter("a!", "attention")
        stage.leave("a!", "attention", error=OOPS)
        assert stage.holders() == ()
        stage.leave("a", "backward", "step", error=OOPS)


@pytest.mark.parametrize("error", [None, OOPS])
def test_leaving_step_early_releases_and_leaves_cold(error: ValueError | None) -> None:
    with Stage("first_step") as stage:
        stage.enter("a", "step")
        stage.through("a", "mask")  # then an item with nothing to train on, or an error between regions
        stage.leave("a", "step", error=error)
        assert stage.holders() == ()
        stage.enter("b", "mask")
        stage.blocked("a", "mask")


def test_without_a_step_region_the_next_first_region_goes_on_with_the_same_hold() -> None:
    with Stage("first_step") as stage:
        stage.through("a", "mask")  # an error that no region sees
        stage.through("a", "mask", "forward", "loss", "backward")
        assert stage.log.of("a") == ["acquired", "released"]


def test_only_the_first_region_begins_a_span() -> None:
    with Stage("first_step") as stage:
        stage.enter("a", "step")
        stage.through("a", "forward", "loss", "backward")
        stage.leave("a", "step")
        assert stage.log.of("a") == []
        stage.enter("b", "mask")
        stage.blocked("a", "mask")  # and so it is not warm either


def test_spans_that_begin_or_end_with_a_region_around_others() -> None:
    with Stage("span:step..mask") as stage:
        stage.enter("a", "step", "mask")
        assert stage.holders() == ("a",)
        stage.leave("a", "mask")
        assert stage.holders() == ()
    with Stage("span:attention..forward") as stage:
        stage.enter("a", "step", "forward")
        assert stage.holders() == ()
        stage.through("a", "attention")
        stage.through("a", "attention")
        assert stage.holders() == ("a",)
        stage.leave("a", "forward")
        assert stage.log.of("a") == ["acquired", "released"]
    with Stage("span:mask..step") as stage:
        stage.enter("a", "step")
        stage.through("a", "mask", "backward")
        assert stage.holders() == ("a",)
        stage.leave("a", "step")
        stage.enter("b", "mask")
        stage.through("a", "mask")  # warm


def test_a_worker_that_ends_inside_a_span_gives_it_back() -> None:
    with Stage("first_step") as stage:
        stage.enter("a", "step", "mask")
        waiting = stage.blocked("b", "mask")
        stage.strategy.worker_done("a")
        waiting.result(LIMIT)
        assert stage.log.of("a") == ["acquired", "released"]
        stage.leave("a", "mask", "step", error=OOPS)  # late: must not take b's hold away
        assert stage.holders() == ("b",)


def test_a_worker_that_is_started_again_under_its_name_begins_a_new_span() -> None:
    with Stage("first_step") as stage:
        stage.enter("a", "step", "mask")  # its thread is gone in the middle
        stage.strategy.worker_done("a")
        stage.enter("b", "mask")
        stage.blocked("a", "mask")
