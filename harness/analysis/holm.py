"""Many tests at once: p-values adjusted so that a difference is seldom told where there is none, over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.analysis.compare import Counts


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given: telling those at most α keeps the chance of any false one at most α.

    Holds whatever the tests have to do with each other. Source: S. Holm, A Simple Sequentially Rejective Multiple Test
    Procedure, Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    count = len(p_values)
    adjusted = [1.0] * count
    largest = 0.0
    for place, index in enumerate(sorted(range(count), key=lambda one: p_values[one])):
        largest = max(largest, min(1.0, (count - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def least_p_of_rates(before: Counts, after: Counts) -> float:
    """The smallest p-value that Fisher's test can give with these numbers of trials and so many failures in all.

    A test that cannot reach α costs the others nothing: it depends on the margins alone, which the test conditions on.
    Source: R. E. Tarone, A Modified Bonferroni Method for Discrete Data, Biometrics 46 (1990), 515-522.
    """
    failures, trials = before.failures + after.failures, before.trials + after.trials
    if not before.trials or not after.trials:
        return 1.0
    whole = math.comb(trials, failures)
    ways = [
        math.comb(before.trials, k) * math.comb(after.trials, failures - k)
        for k in range(max(0, failures - after.trials), min(failures, before.trials) + 1)
    ]
    rarest = min(ways)
    return sum(way for way in ways if way <= rarest) / whole


def least_p_of_values(before: int, after: int) -> float:
    """The smallest two-sided p-value of a rank test of so many values; 1.0 where one side has none."""
    return 1.0 if not before or not after else min(1.0, 2 / math.comb(before + after, before))


def least_p_of_trials(before: int, after: int) -> float:
    """The smallest p-value of Fisher's test of so many trials: no failure on one side, nothing else on the other."""
    return 1.0 if not before or not after else min(least_p_of_rates(Counts(0, before), Counts(after, after)), 1.0)


def trials_to_tell(tests: int, alpha: float) -> int:
    """The fewest trials on either side with which the clearest difference could be told among so many tests."""
    trials = 1
    while least_p_of_values(trials, trials) > alpha / max(1, tests):
        trials += 1
    return trials
