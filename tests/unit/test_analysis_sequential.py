"""The sequential test: it stops early, and its two errors stay below what they are stated to be."""

from __future__ import annotations

import random

import pytest

from harness.analysis.intervals import trials_for_safe
from harness.analysis.sequential import SequentialTest

CASES = [
    SequentialTest(0.0, 0.05, most=200),
    SequentialTest(0.0, 0.2, alpha=0.01, beta=0.1, most=200),
    SequentialTest(0.02, 0.2, most=300),
    SequentialTest(0.05, 0.5, alpha=0.01, beta=0.05, most=300),
]


@pytest.mark.parametrize("test", CASES)
def test_its_errors_are_bounded(test: SequentialTest) -> None:
    """Exact: the distribution of failures is carried on trial by trial."""
    assert test.operating(test.low).high <= test.alpha
    assert test.operating(test.high).low <= test.beta
    for rate in (test.high, (1 + test.high) / 2, 1.0):
        assert test.operating(rate).low <= test.beta
    for rate in (0.0, test.low / 2, test.low):
        assert test.operating(rate).high <= test.alpha


@pytest.mark.parametrize("test", CASES)
def test_the_exact_numbers_are_those_of_simulated_runs(test: SequentialTest) -> None:
    """3,000 runs a case, seed fixed; 4 standard deviations at the most: one seed in 10,000 would fail."""
    dice = random.Random(11)
    runs, high, trials_total = 3_000, 0, 0
    rate = (test.low + test.high) / 2
    for _ in range(runs):
        failures = trials = 0
        said = None
        while said is None and trials < (test.most or 0):
            trials += 1
            failures += dice.random() < rate
            said = test.says(failures, trials)
        high += said == "high"
        trials_total += trials
    exact = test.operating(rate)
    assert high / runs == pytest.approx(exact.high, abs=4 * 0.5 / runs**0.5)
    assert trials_total / runs == pytest.approx(exact.mean_trials, rel=0.08)


def test_the_answers_add_up() -> None:
    found = CASES[2].operating(0.1)
    assert found.low + found.high + found.undecided == pytest.approx(1.0)


def test_with_a_low_rate_of_zero_it_is_the_certification() -> None:
    test = SequentialTest(0.0, 0.05)
    assert test.quiet_trials == trials_for_safe() == 59
    assert test.says(0, 58) is None
    assert test.says(0, 59) == "low"
    assert test.says(1, 1) == "high"
    assert test.says(1, 500) == "high"
    assert test.operating(0.0, most=100).mean_trials == 59
    assert test.operating(0.05, most=100).low == pytest.approx(0.95**59)


def test_it_stops_earlier_than_a_fixed_number_of_trials() -> None:
    """The fixed test with these errors takes 59; where failures are common this one takes two."""
    assert SequentialTest(0.0, 0.05).operating(0.5, most=100).mean_trials == pytest.approx(2.0)
    assert SequentialTest(0.02, 0.2, most=300).operating(0.5).mean_trials < 5


def test_it_can_give_up() -> None:
    found = SequentialTest(0.1, 0.12, most=5).operating(0.11)
    assert found.undecided == pytest.approx(1.0)
    assert found.mean_trials == 5


@pytest.mark.parametrize(
    ("numbers", "word"),
    [
        ({"low": 0.2, "high": 0.1}, "low < high"),
        ({"low": 0.1, "high": 0.1}, "low < high"),
        ({"low": -0.1, "high": 0.1}, "low < high"),
        ({"low": 0.0, "high": 1.0}, "low < high"),
        ({"low": 0.0, "high": 0.1, "alpha": 0.0}, "alpha"),
        ({"low": 0.0, "high": 0.1, "beta": 1.0}, "beta"),
        ({"low": 0.0, "high": 0.1, "most": 0}, "says nothing"),
    ],
)
def test_numbers_that_cannot_be(numbers: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        SequentialTest(**numbers)  # type: ignore[arg-type]


def test_more_failures_than_trials() -> None:
    with pytest.raises(ValueError, match="failures in"):
        CASES[0].says(2, 1)
    with pytest.raises(ValueError, match="limit"):
        SequentialTest(0.0, 0.05).operating(0.1)
