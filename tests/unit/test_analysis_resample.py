"""Intervals of medians: how often they hold, over thousands of simulated measurements."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from harness.analysis.resample import FEWEST, median_interval, ratio_interval

Draw = Callable[[random.Random], float]

SHAPES: dict[str, tuple[Draw, float]] = {
    # name → how to draw, true median
    "throughput": (lambda dice: math.exp(dice.gauss(0, 0.1)), 1.0),
    "long tail": (lambda dice: -math.log(1 - dice.random()), math.log(2)),
    "two modes": (lambda dice: dice.choice((1.0, 3.0)) + dice.random(), 2.0),  # the median is the gap's lower edge
}


@pytest.mark.parametrize("count", [6, 7, 9, 12, 20])
@pytest.mark.parametrize("shape", ["throughput", "long tail"])
def test_a_median_is_where_it_is_said_to_be(shape: str, count: int) -> None:
    """2,000 runs, seed fixed; 95 % stated. A true 95 % would show less than 93.5 % once in 500 seeds."""
    draw, truth = SHAPES[shape]
    dice = random.Random(count)
    covered = 0
    for _ in range(2_000):
        found = median_interval([draw(dice) for _ in range(count)])
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert covered / 2_000 >= 0.935


def test_a_median_between_two_modes() -> None:
    """The worst for a bootstrap: no value near the median."""
    draw, _ = SHAPES["two modes"]
    dice = random.Random(3)
    covered = 0
    for _ in range(1_000):
        found = median_interval([draw(dice) for _ in range(9)])
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 3.0 and found.high >= 2.0
    assert covered / 1_000 >= 0.95


@pytest.mark.parametrize(("before", "after"), [(5, 5), (5, 20), (12, 12)])
def test_a_ratio_of_medians_is_where_it_is_said_to_be(before: int, after: int) -> None:
    """400 runs of 500 resamples, seed fixed; 95 % stated. A true 95 % would show less than 91.5 % once in 500 seeds."""
    dice = random.Random(100 * before + after)
    covered = 0
    for _ in range(400):
        one = [math.exp(dice.gauss(0, 0.15)) for _ in range(before)]
        other = [1.2 * math.exp(dice.gauss(0, 0.15)) for _ in range(after)]
        found = ratio_interval(one, other, resamples=500)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.2 <= found.high
    assert covered / 400 >= 0.915


def test_more_measurements_are_surer() -> None:
    dice = random.Random(0)
    values = [dice.gauss(10, 1) for _ in range(60)]
    few, many = median_interval(values[:10]), median_interval(values)
    assert few is not None
    assert many is not None
    assert few.low is not None
    assert few.high is not None
    assert many.low is not None
    assert many.high is not None
    assert many.high - many.low < few.high - few.low
    assert few.low <= few.value <= few.high


def test_few_values_bound_nothing() -> None:
    assert median_interval([]) is None
    for count in range(1, 6):
        found = median_interval([float(value) for value in range(count)])
        assert found is not None
        assert (found.low, found.high, found.values) == (None, None, count)
    assert ratio_interval([], [1.0]) is None
    found = ratio_interval([1.0] * (FEWEST - 1), [2.0] * 20)
    assert found is not None
    assert (found.value, found.low) == (2.0, None)
    assert str(found) == "2"


def test_the_same_data_say_the_same() -> None:
    values = [1.0, 1.1, 1.3, 0.9, 1.05, 1.2]
    assert ratio_interval(values, values[::-1]) == ratio_interval(values, values[::-1])


def test_a_ratio_is_for_positive_values() -> None:
    with pytest.raises(ValueError, match="positive"):
        ratio_interval([1.0] * 5, [1.0, 0.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("count", [1_029, 1_030, 5_000])
def test_as_many_values_as_there_are_have_an_interval(count: int) -> None:
    """By the normal approximation the ranks lie 0.98·√n on either side of the middle."""
    found = median_interval([float(number) for number in range(count)])
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(0.98 * math.sqrt(count), abs=2)
