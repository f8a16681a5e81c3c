"""A strategy whose regions nobody enters holds nothing: it says so, once, and only then."""

from __future__ import annotations

import threading
import warnings

import pytest

from harness import locks
from harness.locks import Strategy, make_strategy

OF_THE_STEP = ("none", "compile_gate", "warm_gate", "every_step", "each:step+mask", "span:step..backward")
"""Those that hold something, or are meant to hold nothing, in a loop that names `step` alone."""

OTHERS = {
    "per_call": "attention",
    "per_forward": "mask",
    "first_step": "mask",
    "warmup_barrier": "mask",
    "each:loss+forward": "forward or loss",
    "span:forward..step": "forward",
}
"""Strategy → the regions that the warning names."""


def step(strategy: Strategy, *regions: str) -> None:
    with strategy.region("step", "a", key="known"):
        for region in regions:
            with strategy.region(region, "a"):
                pass


def told(strategy: Strategy, *regions: str, steps: int = 3) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            step(strategy, *regions)
    return caught


def test_every_strategy_is_in_one_of_the_lists() -> None:
    assert set(locks.STRATEGIES) <= {*OF_THE_STEP, *OTHERS}


@pytest.mark.parametrize("owner", ["worker", "thread"])
@pytest.mark.parametrize(("name", "regions"), OTHERS.items())
def test_steps_alone_are_warned_of_once_at_the_line_of_the_step(name: str, regions: str, owner: str) -> None:
    (warning,) = told(make_strategy(name, workers=["a"], owner=owner))
    assert warning.category is UserWarning
    assert f"{name!r} has held nothing: a step has ended, and nobody has entered {regions};" in str(warning.message)
    assert warning.filename == __file__
    assert warning.lineno == step.__code__.co_firstlineno + 1


@pytest.mark.parametrize("name", OF_THE_STEP)
def test_nothing_is_said_where_the_step_is_what_counts(name: str) -> None:
    assert told(make_strategy(name, workers=["a"])) == []


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_said_when_the_regions_are_named(name: str) -> None:
    assert told(make_strategy(name, workers=["a"]), *locks.REGIONS[1:]) == []


def test_nothing_is_said_when_somebody_else_entered_them() -> None:
    strategy = make_strategy("each:mask", workers=["a", "b"])
    with strategy.region("mask", "b"):
        pass
    assert told(strategy) == []


def test_nothing_is_said_of_a_step_that_fails_or_when_it_was_asked_not_to() -> None:
    strategy = make_strategy("first_step", workers=["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError), strategy.region("step", "a"):
            raise KeyError
    assert told(make_strategy("first_step", workers=["a"], warn=False)) == []


def test_a_warning_made_an_error_leaves_no_lock_held_and_comes_once() -> None:
    strategy = make_strategy("first_step", workers=["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="has held nothing"):
            step(strategy)
        step(strategy)
    assert all(not state.holders for state in strategy.wait_graph())


def test_of_two_threads_one_warns() -> None:
    """Both are in their steps before either leaves."""
    strategy, both = make_strategy("per_call", workers=["a", "b"]), threading.Barrier(2)

    def run(worker: str) -> None:
        with strategy.region("step", worker):
            both.wait(20)

    threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in ("a", "b")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert len(caught) == 1
