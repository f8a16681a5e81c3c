"""Two sets of trials: better, worse, or a difference that cannot be told from chance.

Only like is compared with like, and only like is added up: `pool` refuses cold trials beside warm ones and trials of
different schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.analysis.intervals import CONFIDENCE, RateInterval, failure_rate_interval
from harness.analysis.resample import MedianInterval, ratio_interval
from harness.core.outcome import FAILURES, INCOMPLETE, SKIPPED

ALPHA = 0.05
"""How often a difference is told where there is none."""

CANNOT_TELL = "no change that can be told"
_EXACT_AT_MOST = 10_000  # product of the sizes up to which the exact distribution of ranks is computed


@dataclass(frozen=True)
class Counts:
    """`failures` of `trials` that say something of the subject."""

    failures: int
    trials: int


@dataclass(frozen=True)
class Comparison:
    """What can be said: `word` in full ("faster"), `told` whether it is a difference, `p` the chance of one as large.

    `ratio`, of measurements: after ÷ before. `before` and `after`, of failure rates: the counts with their intervals.
    `at_odds`: a difference that the test would tell, in the other direction than the medians show; it is not told.
    """

    word: str
    told: bool
    p: float
    ratio: MedianInterval | None = None
    before: RateInterval | None = None
    after: RateInterval | None = None
    at_odds: bool = False

    def __str__(self) -> str:
        p = f"p = {self.p:.2g}" if self.p >= 0.001 else "p < 0.001"
        return f"{self.word}, {p}"


def pool(rows: Iterable[Mapping[str, Any]]) -> Counts:
    """Failures and trials of rows that may be added up; rows that say nothing of the subject are left out.

    Raises ValueError for cold and warm trials together, and for different schedules.
    """
    failures = trials = 0
    seen: dict[str, set[str]] = {"cache": set(), "schedule": set()}
    for row in rows:
        for axis, values in seen.items():
            values.add(str(row["scenario"][axis]))
            if len(values) > 1:
                raise ValueError(f"trials of {axis} {' and '.join(sorted(values))} are never counted together")
        labels = set(row["outcomes"])
        if labels <= {*INCOMPLETE, SKIPPED}:
            continue
        trials += 1
        failures += bool(labels & set(FAILURES))
    return Counts(failures, trials)


def compare_rates(before: Counts, after: Counts, alpha: float = ALPHA) -> Comparison:
    """Whether the failure rate differs: Fisher's exact test, two-sided.

    Source: R. A. Fisher, Statistical Methods for Research Workers (1934), section 21.02. Raises ValueError for counts
    that cannot be.
    """
    confidence = CONFIDENCE
    intervals = [failure_rate_interval(side.failures, side.trials, confidence) for side in (before, after)]
    p = fisher_exact(before, after)
    # Cross-multiplied: a side without trials has no rate, and then p is 1.
    change = after.failures * before.trials - before.failures * after.trials
    told = p <= alpha and change != 0
    word = ("more failures" if change > 0 else "fewer failures") if told else CANNOT_TELL
    return Comparison(word, told, p, before=intervals[0], after=intervals[1])


def fisher_exact(one: Counts, other: Counts) -> float:
    """Two-sided p-value: the chance, with these margins, of a table that is no likelier than this one."""
    failures, trials = one.failures + other.failures, one.trials + other.trials
    whole = math.comb(trials, failures)
    ways = [
        math.comb(one.trials, k) * math.comb(other.trials, failures - k)
        for k in range(max(0, failures - other.trials), min(failures, one.trials) + 1)
    ]
    seen = math.comb(one.trials, one.failures) * math.comb(other.trials, other.failures)
    return sum(way for way in ways if way <= seen) / whole


def compare_values(
    before: Sequence[float],
    after: Sequence[float],
    *,
    better: Literal["higher", "lower"],
    alpha: float = ALPHA,
) -> Comparison:
    """Whether measurements differ: faster, slower, or not to be told. `better`: which is faster.

    Test: Mann-Whitney, two-sided, exact without ties (H. B. Mann and D. R. Whitney, Ann. Math. Statist. 18 (1947),
    50-60). It decides, and gives the direction: which side more of the pairs lean to. The medians, whose ratio is shown,
    lean elsewhere where a side has two modes: then nothing is told. The ratio's interval is a bootstrap of its own, so at
    the edge it can disagree with the test.
    """
    ratio = ratio_interval(before, after)
    if ratio is None:
        return Comparison(CANNOT_TELL, False, 1.0)
    p, lean = _rank_test(before, after)
    differs = p <= alpha and lean != 0
    told = differs and (ratio.value > 1 if lean > 0 else ratio.value < 1)
    word = ("faster" if (lean > 0) == (better == "higher") else "slower") if told else CANNOT_TELL
    return Comparison(word, told, p, ratio=ratio, at_odds=differs and not told)


def _rank_test(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """The two-sided p-value, and by how many pairs beyond half `after` is the larger (less than 0: the smaller)."""
    from scipy.stats import mannwhitneyu  # a second to import, and needed for measurements only

    values = [*before, *after]
    exact = len(set(values)) == len(values) and len(before) * len(after) <= _EXACT_AT_MOST
    found = mannwhitneyu(before, after, alternative="two-sided", method="exact" if exact else "asymptotic")
    p = float(found.pvalue)
    lean = len(before) * len(after) / 2 - float(found.statistic)  # which counts the pairs in which `before` is larger
    return 1.0 if math.isnan(p) else p, lean  # NaN: all values equal
