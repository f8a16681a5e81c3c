"""Intervals of failure rates: their definition, their coverage, and what a number of trials excludes."""

from __future__ import annotations

import math
import random

import pytest

from harness.analysis.intervals import (
    failure_rate_interval,
    failure_rate_lower,
    failure_rate_upper,
    rate_excluded,
    trials_for_safe,
)


def at_most(failures: int, trials: int, rate: float) -> float:
    """P(X ≤ failures), X binomial."""
    return sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(failures + 1))


@pytest.mark.parametrize(("failures", "trials"), [(0, 1), (0, 59), (1, 5), (3, 10), (10, 10), (30, 60)])
def test_either_side_has_half_of_what_may_go_wrong(failures: int, trials: int) -> None:
    found = failure_rate_interval(failures, trials)
    if failures < trials:
        assert at_most(failures, trials, found.high) == pytest.approx(0.025, rel=1e-6)
    else:
        assert found.high == 1.0
    if failures:
        assert 1 - at_most(failures - 1, trials, found.low) == pytest.approx(0.025, rel=1e-6)
    else:
        assert found.low == 0.0
    assert (found.failures, found.trials, found.confidence) == (failures, trials, 0.95)


def test_published_values() -> None:
    """Clopper and Pearson's chart for 10 trials at 95 %, as tabulated since: 1/10 is 0.0025 to 0.4450."""
    found = failure_rate_interval(1, 10)
    assert (round(found.low, 4), round(found.high, 4)) == (0.0025, 0.4450)


@pytest.mark.parametrize("trials", [1, 5, 20, 59])
def test_the_stated_confidence_is_true_at_any_rate(trials: int) -> None:
    """Exact, not by chance: summed over all outcomes."""
    intervals = [failure_rate_interval(k, trials) for k in range(trials + 1)]
    for step in range(101):
        rate = step / 100
        covered = sum(
            math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
            for k, found in enumerate(intervals)
            if found.low - 1e-12 <= rate <= found.high + 1e-12
        )
        assert covered >= 0.95 - 1e-9, (trials, rate)


def test_it_holds_in_simulated_runs() -> None:
    """4,000 runs, seed fixed. A true coverage of 95 % would show less than 94 % once in about 500 seeds."""
    dice = random.Random(7)
    runs = 4_000
    covered = 0
    for _ in range(runs):
        rate = dice.random()
        failures = sum(dice.random() < rate for _ in range(20))
        found = failure_rate_interval(failures, 20)
        covered += found.low <= rate <= found.high
    assert covered / runs >= 0.94


def test_wider_than_one_sided() -> None:
    found = failure_rate_interval(2, 30)
    assert found.low < failure_rate_lower(2, 30) < failure_rate_upper(2, 30) < found.high


@pytest.mark.parametrize("p_min", [0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_trials_for_safe_exclude_that_rate_and_one_fewer_does_not(p_min: float, confidence: float) -> None:
    trials = trials_for_safe(p_min, confidence)
    assert rate_excluded(0, trials, confidence) <= p_min + 1e-12
    if trials > 1:
        assert rate_excluded(0, trials - 1, confidence) > p_min


def test_the_numbers_of_the_design() -> None:
    assert trials_for_safe() == 59
    assert round(rate_excluded(0, 14), 2) == 0.19
    assert rate_excluded(0, 0) == 1.0


@pytest.mark.parametrize(("failures", "trials", "confidence"), [(-1, 5, 0.95), (6, 5, 0.95), (1, 5, 0.0), (1, 5, 1.0)])
def test_counts_that_cannot_be(failures: int, trials: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="failures in"):
        failure_rate_interval(failures, trials, confidence)
