"""Two sets of trials: better, worse, or a difference that cannot be told from chance.

Only like is compared with like, and only like is added up: `pool` refuses cold trials beside warm ones and trials of
different schedules.
"""

from __future__ import annotations

import math
from collections import Counter
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
_TIED_AT_MOST = 2_500  # and where values are equal


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

    Test: Mann-Whitney, two-sided (H. B. Mann and D. R. Whitney, Ann. Math. Statist. 18 (1947), 50-60); exact but for many
    values, with ties as well, and never below what these values could show at best. It decides, and gives the direction:
    which side more of the pairs lean to. The medians, whose ratio is shown, lean elsewhere where a side has two modes: then
    nothing is told. The ratio's interval is a bootstrap of its own, so at the edge it can disagree with the test.
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
    product = len(before) * len(after)
    tied = len(set(values)) < len(values)
    exact = not tied and product <= _EXACT_AT_MOST
    found = mannwhitneyu(before, after, alternative="two-sided", method="exact" if exact else "asymptotic")
    p = float(found.pvalue)
    lean = product / 2 - float(found.statistic)  # which counts the pairs in which `before` is larger
    if tied and product <= _TIED_AT_MOST:
        p = _tied_p(before, after)
    elif tied:
        p = max(p, _least_p(before, after))
    return 1.0 if math.isnan(p) else p, lean  # NaN: all values equal


def _tied_p(before: Sequence[float], after: Sequence[float]) -> float:
    """Exact two-sided p-value given which values are equal: twice the smaller tail of the sum of mid-ranks.

    Over all ways to call so many of the values "before". Source: E. L. Lehmann, Nonparametrics (1975), section 1.4.
    """
    import numpy as np

    few, many = sorted((before, after), key=len)
    groups = sorted(Counter([*few, *many]).items())
    total = len(few) + len(many)
    ways = np.zeros((len(few) + 1, len(few) * 2 * total + 1))  # [taken, twice their mid-ranks]: in how many ways
    ways[0, 0] = 1.0
    ranked, seen = 0, 0
    for value, size in groups:
        twice = 2 * ranked + size + 1  # the mid-rank of its places ranked + 1 … ranked + size, doubled
        ranked += size
        seen += twice * sum(one == value for one in few)
        more = ways.copy()
        for taken in range(1, min(size, len(few)) + 1):
            more[taken:, taken * twice :] += math.comb(size, taken) * ways[:-taken, : -taken * twice]
        ways = more
    sums = ways[-1]
    tail = min(sums[: seen + 1].sum(), sums[seen:].sum())
    return min(1.0, 2 * float(tail) / math.comb(total, len(few)))


def _least_p(before: Sequence[float], after: Sequence[float]) -> float:
    """The smallest exact p-value with these values: one side has the lowest of them, or the highest."""
    few = min(len(before), len(after))
    values = sorted([*before, *after])
    ends = [(values[:few], values[few - 1]), (values[-few:], values[-few])]
    ways = min(math.comb(values.count(edge), taken.count(edge)) for taken, edge in ends)
    return min(1.0, 2 * ways / math.comb(len(values), few))
