"""The belief about a ladder: Bayes' rule done another way, and chances that are true on average."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import pytest

from harness.analysis.belief import RARE_WEIGHT, RATES, Belief, Counts
from harness.analysis.order import chain, strategy_order

THREE = chain(("a", "b", "c"))
GRID = [
    (Fraction(rate).limit_denominator(100), (1 - Fraction(RARE_WEIGHT).limit_denominator(100)) / 4) for rate in RATES
]
GRID.append((Fraction(5, 100), Fraction(RARE_WEIGHT).limit_denominator(100)))


def by_hand(counts: Counts, first_safe: int) -> Fraction:
    """The weight of "all from this one on are safe" in a chain of three, in exact fractions."""
    total = Fraction(0)
    for rate, weight in GRID:
        likely = weight
        for name, _, failures, quiet in counts:
            if "abc".index(name) >= first_safe:
                likely *= 0 if failures else 1
            else:
                likely *= rate**failures * (1 - rate) ** quiet
        total += likely
    return total


@pytest.mark.parametrize(
    "counts",
    [
        (),
        (("a", 0, 1, 0),),
        (("a", 0, 0, 6),),
        (("a", 0, 1, 3), ("b", 0, 0, 4)),
        (("a", 0, 2, 1), ("b", 0, 1, 9), ("c", 0, 0, 20)),
        (("c", 0, 1, 2),),
    ],
)
def test_it_is_bayes_rule(counts: Counts) -> None:
    opinion = Belief(THREE, p_min=0.05).opinion(counts, THREE.names)
    weights = [by_hand(counts, first) for first in range(4)]
    total = sum(weights)
    for first, name in enumerate(("a", "b", "c", "")):
        assert opinion.answer[name] == pytest.approx(float(weights[first] / total), abs=1e-9)
    for place, name in enumerate("abc"):
        assert opinion.unsafe[name] == pytest.approx(float(sum(weights[place + 1 :]) / total), abs=1e-9)


def test_what_a_trial_tells_is_the_mutual_information() -> None:
    """Against its definition: the answer's entropy now, less what is left of it after each outcome."""
    belief = Belief(THREE, p_min=0.05)
    counts: Counts = (("a", 0, 1, 2), ("b", 0, 0, 3))
    now = belief.opinion(counts, THREE.names)

    def entropy(chances: dict[str, float]) -> float:
        return -sum(chance * math.log2(chance) for chance in chances.values() if chance > 0)

    for name in "abc":
        failed = {**{n: (f, q) for n, _, f, q in counts}}
        f, q = failed.get(name, (0, 0))
        rest = [entry for entry in counts if entry[0] != name]
        after_failure = belief.opinion((*rest, (name, 0, f + 1, q)), THREE.names)
        after_quiet = belief.opinion((*rest, (name, 0, f, q + 1)), THREE.names)
        left = now.fails[name, 0] * entropy(dict(after_failure.answer))
        left += (1 - now.fails[name, 0]) * entropy(dict(after_quiet.answer))
        assert now.tells[name, 0] == pytest.approx(entropy(dict(now.answer)) - left, abs=1e-9)


def test_its_chances_are_true_on_average() -> None:
    """Ladders drawn from the prior: of strategies believed unsafe at 20-40 %, about 30 % are. 3,000 ladders, seed fixed;
    each class holds 300 or more, so 9 points off would be three standard deviations."""
    order = chain(tuple("abcdef"))
    belief = Belief(order, p_min=0.05)
    rates = [*RATES, 0.05]
    weights = [(1 - RARE_WEIGHT) / len(RATES)] * len(RATES) + [RARE_WEIGHT]
    dice = random.Random(3)
    classes: dict[int, list[tuple[float, bool]]] = {}
    for _ in range(3_000):
        first = dice.randrange(7)
        (rate,) = dice.choices(rates, weights)
        counts = []
        for place, name in enumerate(order.names):
            trials = dice.randrange(5)
            failures = sum(dice.random() < rate for _ in range(trials)) if place < first else 0
            if trials:
                counts.append((name, 0, failures, trials - failures))
        opinion = belief.opinion(tuple(counts), order.names)
        place = dice.randrange(6)
        chance = opinion.unsafe[order.names[place]]
        classes.setdefault(int(5 * min(chance, 0.999)), []).append((chance, place < first))
    for members in classes.values():
        assert len(members) >= 150
        said = sum(chance for chance, _ in members) / len(members)
        true = sum(unsafe for _, unsafe in members) / len(members)
        assert true == pytest.approx(said, abs=3.5 * 0.5 / len(members) ** 0.5)


def test_in_a_matrix_the_worst_scenario_is_not_known() -> None:
    """Quiet trials in one scenario leave room for failures in the other."""
    one = Belief(THREE, p_min=0.05, arms=1).opinion((("b", 0, 0, 30),), THREE.names)
    two = Belief(THREE, p_min=0.05, arms=2).opinion((("b", 0, 0, 30),), THREE.names)
    both = Belief(THREE, p_min=0.05, arms=2).opinion((("b", 0, 0, 30), ("b", 1, 0, 30)), THREE.names)
    assert two.unsafe["b"] > one.unsafe["b"]
    assert both.unsafe["b"] < two.unsafe["b"]


def test_failures_in_two_scenarios_do_not_contradict_each_other() -> None:
    opinion = Belief(THREE, p_min=0.05, arms=2).opinion((("b", 0, 1, 0), ("b", 1, 1, 0)), THREE.names)
    assert opinion.unsafe["b"] == opinion.unsafe["a"] == 1.0


def test_what_is_below_a_failure_is_unsafe_and_what_cannot_be_compared_is_open() -> None:
    order = strategy_order(["none", "per_call", "first_step", "compile_gate", "every_step"])
    opinion = Belief(order, p_min=0.05).opinion((("first_step", 0, 1, 0),), order.names)
    assert opinion.unsafe["none"] == opinion.unsafe["per_call"] == opinion.unsafe["first_step"] == 1.0
    assert 0 < opinion.unsafe["compile_gate"] < 1
    assert opinion.unsafe["every_step"] < opinion.unsafe["compile_gate"]


def test_the_answer_is_the_cheapest_of_the_safe_ones_by_the_cost_given() -> None:
    order = strategy_order(["compile_gate", "first_step"])
    belief = Belief(order, p_min=0.05)
    counts: Counts = (("first_step", 0, 0, 200), ("compile_gate", 0, 0, 200))
    for costs in itertools.permutations(order.names):
        opinion = belief.opinion(counts, costs)
        assert max(opinion.answer, key=lambda name: opinion.answer[name]) == costs[0]


def test_a_prior_for_the_answers() -> None:
    sure = Belief(THREE, p_min=0.05, prior={"a": 8.0, "b": 1.0, "c": 1.0, "": 2.0}).opinion((), THREE.names)
    assert sure.answer == pytest.approx({"a": 8 / 12, "b": 1 / 12, "c": 1 / 12, "": 2 / 12})


def test_a_prior_that_rules_out_that_nothing_is_safe() -> None:
    with pytest.raises(ValueError, match='""'):
        Belief(THREE, p_min=0.05, prior={"": 0.0})


def test_many_trials_do_not_underflow() -> None:
    opinion = Belief(THREE, p_min=0.05).opinion((("a", 0, 900, 100), ("b", 0, 0, 5_000)), THREE.names)
    assert opinion.answer["b"] == pytest.approx(1.0)
