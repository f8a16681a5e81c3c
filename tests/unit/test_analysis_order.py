"""Which strategy holds at least what another holds."""

from __future__ import annotations

import itertools

import pytest

from harness.analysis.order import Order, chain, holds_at_least, nominal_cost, strategy_order
from harness.core.errors import UserError
from harness.core.lockspec import NAMES, parse_lock

MORE = ("each:mask", "each:mask+forward", "each:step", "span:mask..loss", "span:attention..backward")


def below(name: str, *names: str) -> set[str]:
    return set(strategy_order([name, *names]).below[name])


def test_the_strategies_of_the_design() -> None:
    order = strategy_order(NAMES)
    assert order.names[0] == "none"
    assert order.names[-1] == "process"
    assert {name: set(order.just_below[name]) for name in NAMES} == {
        "none": set(),
        "thread_local_fx": {"none"},
        "per_call": {"none"},
        "per_forward": {"per_call"},
        "first_step": {"per_forward"},
        "warmup_barrier": {"first_step"},
        "compile_gate": {"none"},
        "warm_gate": {"compile_gate"},
        "every_step": {"first_step", "compile_gate"},
        "process": {"thread_local_fx", "warmup_barrier", "warm_gate", "every_step"},
    }


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("each:forward", "per_call"),
        ("each:mask+forward", "each:mask"),
        ("span:mask..backward", "each:mask+forward+loss+backward"),
        ("first_step", "span:mask..loss"),
        ("each:step", "first_step"),
        ("span:step..backward", "first_step"),
        ("every_step", "each:step"),
        ("span:attention..loss", "span:attention..forward"),
        ("each:forward", "span:attention..forward"),
    ],
)
def test_more_is_held(more: str, less: str) -> None:
    assert holds_at_least(parse_lock(more), parse_lock(less))
    assert not holds_at_least(parse_lock(less), parse_lock(more))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("compile_gate", "first_step"),
        ("compile_gate", "per_call"),
        ("thread_local_fx", "every_step"),
        ("warmup_barrier", "every_step"),
        ("warm_gate", "every_step"),
        ("warm_gate", "first_step"),
        ("warmup_barrier", "each:step"),
        ("each:mask", "each:forward"),
        ("span:mask..forward", "span:forward..loss"),
        ("each:mask+backward", "per_forward"),
        ("span:attention..forward", "span:forward..attention"),
    ],
)
def test_neither_holds_what_the_other_does(one: str, other: str) -> None:
    assert not holds_at_least(parse_lock(one), parse_lock(other))
    assert not holds_at_least(parse_lock(other), parse_lock(one))


def test_it_is_a_partial_order() -> None:
    specs = [parse_lock(name) for name in (*NAMES, *MORE)]
    for a, b, c in itertools.product(specs, repeat=3):
        assert holds_at_least(a, a)
        if holds_at_least(a, b) and holds_at_least(b, c):
            assert holds_at_least(a, c), (a, b, c)


def test_the_order_of_cost_never_puts_more_before_less() -> None:
    order = strategy_order([*NAMES, *MORE])
    for name in order.names:
        assert all(order.names.index(other) < order.names.index(name) for other in order.below[name])
        assert all(nominal_cost(other) <= nominal_cost(name) for other in order.below[name])


def brute_safe_sets(order: Order) -> set[frozenset[str]]:
    found = set()
    for size in range(len(order.names) + 1):
        for members in itertools.combinations(order.names, size):
            if all(order.above[name] <= set(members) for name in members):
                found.add(frozenset(members))
    return found


@pytest.mark.parametrize("names", [NAMES, ("none", *MORE), ("per_call", "compile_gate", "thread_local_fx")])
def test_every_set_that_can_be_safe(names: tuple[str, ...]) -> None:
    order = strategy_order(names)
    assert len(order.safe_sets) == len(set(order.safe_sets))
    assert set(order.safe_sets) == brute_safe_sets(order)


def test_a_chain() -> None:
    order = chain("abc")
    assert order.just_below["c"] == ("b",)
    assert [sorted(members) for members in order.safe_sets] == [[], ["c"], ["b", "c"], ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ["no lock strategy is left"]),
        (["none", "first_step", "none"], ["named twice", "none"]),
        (["first_step", "span:mask..backward"], ["first_step", "span:mask..backward", "one and the same"]),
        (["per_call", "each:attention"], ["one and the same"]),
        (["frist_step"], ["frist_step", 'did you mean "first_step"']),
    ],
)
def test_bad_lists(names: list[str], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        strategy_order(names)
    for word in words:
        assert word in str(error.value)


def test_too_many_that_cannot_be_compared() -> None:
    names = tuple(f"n{number}" for number in range(20))
    with pytest.raises(UserError, match=r"20 lock strategies.*name fewer"):
        _ = Order(names, {name: frozenset() for name in names}).safe_sets
