"""Comparing two sets of trials: what may be added up, and that a difference is told no oftener than stated."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Literal

import pytest
from fake_runs import row
from scipy.stats import fisher_exact as scipy_fisher
from scipy.stats import mannwhitneyu, rankdata

from harness.analysis import compare
from harness.analysis.compare import CANNOT_TELL, Counts, compare_rates, compare_values, fisher_exact, pool
from harness.analysis.holm import least_p_of_values
from harness.core.scenario import Scenario


def test_fisher_against_scipy() -> None:
    dice = random.Random(1)
    for _ in range(60):
        one = Counts(dice.randint(0, 8), 8)
        other = Counts(dice.randint(0, 15), 15)
        table = [[one.failures, one.trials - one.failures], [other.failures, other.trials - other.failures]]
        assert fisher_exact(one, other) == pytest.approx(float(scipy_fisher(table)[1]), rel=1e-9)


def test_fisher_for_a_published_table() -> None:
    """Fisher's tea-tasting lady, three of four right: p = 0.486 (The Design of Experiments, 1935)."""
    assert fisher_exact(Counts(3, 4), Counts(1, 4)) == pytest.approx(34 / 70)


def test_wording_of_rates() -> None:
    assert str(compare_rates(Counts(10, 10), Counts(0, 10))) == "fewer failures, p < 0.001"
    assert str(compare_rates(Counts(0, 10), Counts(10, 10))) == "more failures, p < 0.001"
    assert str(compare_rates(Counts(3, 10), Counts(2, 10))) == f"{CANNOT_TELL}, p = 1"
    found = compare_rates(Counts(1, 5), Counts(0, 5))
    assert found.word == CANNOT_TELL
    assert found.before is not None
    assert (found.before.failures, found.before.trials) == (1, 5)


def test_nothing_to_compare_is_no_difference() -> None:
    assert compare_rates(Counts(0, 0), Counts(5, 5)).p == 1.0


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.7])
def test_equal_rates_are_told_apart_seldom(rate: float) -> None:
    """2,000 runs, seed fixed, 5 % stated; Fisher's test stays well below. A true 5 % would exceed 6.5 % in 1 of 1,000."""
    dice = random.Random(5)
    told = 0
    for _ in range(2_000):
        one = Counts(sum(dice.random() < rate for _ in range(20)), 20)
        other = Counts(sum(dice.random() < rate for _ in range(20)), 20)
        told += compare_rates(one, other).told
    assert told / 2_000 <= 0.05


@pytest.mark.parametrize(("before", "after"), [(5, 5), (8, 12)])
@pytest.mark.parametrize("ties", [False, True])
def test_equal_measurements_are_told_apart_seldom(before: int, after: int, ties: bool) -> None:
    """800 runs, seed fixed; 5 % stated, 7.4 % would come up in 1 of 1,000. Rounded values bring ties."""
    dice = random.Random(before)

    def draw() -> float:
        value = math.exp(dice.gauss(0, 0.1))
        return round(value, 1) if ties else value

    told = 0
    for _ in range(800):
        one, other = [draw() for _ in range(before)], [draw() for _ in range(after)]
        told += compare._rank_test(one, other)[0] <= 0.05
    assert told / 800 <= 0.074


def test_a_difference_is_found() -> None:
    slow, fast = [10.0, 10.2, 9.9, 10.1, 10.05, 9.95], [11.0, 11.2, 10.9, 11.1, 11.05, 10.95]
    assert compare_values(slow, fast, better="higher").word == "faster"
    assert compare_values(fast, slow, better="higher").word == "slower"
    assert compare_values(slow, fast, better="lower").word == "slower"
    found = compare_values(slow, fast, better="higher")
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(1.0995, abs=1e-3)
    assert str(found) == "faster, p = 0.0022"


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_direction_never_contradicts_the_ranks(better: Literal["higher", "lower"]) -> None:
    """Two modes a side: most pairs say that it takes longer (p = 0.033), and its median is smaller. So nothing is told."""
    before = [5 + n / 100 for n in range(9)] + [10 + n / 100 for n in range(11)]
    after = [9 + n / 100 for n in range(11)] + [20 + n / 100 for n in range(9)]
    for old, new in ((before, after), (after, before)):
        found = compare_values(old, new, better=better)
        assert mannwhitneyu(old, new, method="exact").pvalue == pytest.approx(found.p)
        assert found.p <= 0.05
        assert (found.word, found.told, found.at_odds) == (CANNOT_TELL, False, True)
    assert not compare_values(before, before, better=better).at_odds


def test_a_direction_that_is_told_is_that_of_the_ranks() -> None:
    dice = random.Random(3)
    told = 0
    for _ in range(300):
        old, new = ([dice.choice((5, 10)) * dice.uniform(a, a + 0.3) for _ in range(12)] for a in (1.0, dice.uniform(0.8, 1.3)))
        found = compare_values(old, new, better="higher")
        if found.told:
            told += 1
            side: Literal["less", "greater"] = "less" if found.word == "faster" else "greater"
            assert mannwhitneyu(old, new, alternative=side).pvalue < 0.05
            assert found.ratio is not None
            assert (found.ratio.value > 1) == (found.word == "faster")
    assert told > 20


def test_with_ties_p_is_that_of_all_ways_to_call_the_values() -> None:
    """Against the count over every one of them; and where they are too many for that, never below what they could show."""
    found = compare_values([1.0] * 3, [2.0] * 3, better="higher")
    assert found.p == pytest.approx(0.1)
    assert not found.told
    dice = random.Random(0)
    for _ in range(300):
        most = dice.randint(1, 4)
        one, other = ([float(dice.randint(0, most)) for _ in range(dice.randint(1, 5))] for _ in "ab")
        ranks = [2 * float(rank) for rank in rankdata([*one, *other])]
        sums = [sum(ways) for ways in itertools.combinations(ranks, len(one))]

        def p(seen: float, sums: Sequence[float] = sums) -> float:
            return min(1.0, 2 * min(sum(s <= seen for s in sums), sum(s >= seen for s in sums)) / len(sums))

        if len(set(ranks)) < len(ranks):
            assert compare._rank_test(one, other)[0] == pytest.approx(p(sum(ranks[: len(one)]))), (one, other)
        assert compare._least_p(one, other) == pytest.approx(min(map(p, sums))), (one, other)
        assert compare._rank_test(one, other)[0] >= least_p_of_values(len(one), len(other)) - 1e-12


def test_of_many_values_with_ties_p_is_never_below_the_least() -> None:
    one, other = [1.0, 1.0], [2.0] * 1500
    assert mannwhitneyu(one, other, method="asymptotic").pvalue < 1e-6
    assert compare._rank_test(one, other)[0] == pytest.approx(2 / math.comb(1502, 2))


def test_too_little_tells_nothing() -> None:
    assert compare_values([1.0], [2.0], better="higher").word == CANNOT_TELL
    assert compare_values([], [2.0], better="higher").p == 1.0
    assert compare_values([1.0] * 6, [1.0] * 6, better="higher").p == 1.0


def test_what_says_nothing_is_no_trial() -> None:
    rows = [row(), row(None, 1, "fx_error"), row(None, 2, "setup_error"), row(None, 3, "out_of_memory")]
    assert pool([*rows, row(None, 4, "skipped"), row(None, 5, "interrupted")]) == Counts(1, 2)
    assert pool([]) == Counts(0, 0)


@pytest.mark.parametrize(("axis", "one", "other"), [("cache", "cold", "warm"), ("schedule", "none", "delays:1")])
def test_cold_and_warm_and_schedules_are_never_pooled(axis: str, one: str, other: str) -> None:
    rows = [row(Scenario().replace(**{axis: one})), row(Scenario().replace(**{axis: other}))]
    with pytest.raises(ValueError, match=f"{axis}.*never counted together"):
        pool(rows)
    assert pool(rows[:1]).trials == pool(rows[1:]).trials == 1
