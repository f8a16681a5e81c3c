"""How sure a count of failures makes us."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENCE = 0.95
P_MIN = 0.05
"""The failure rate that `safe` excludes."""


@dataclass(frozen=True)
class RateInterval:
    """A failure rate lies between `low` and `high`, at `confidence`. The counts it rests on go with it."""

    failures: int
    trials: int
    low: float
    high: float
    confidence: float


def failure_rate_upper(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """One-sided upper Clopper-Pearson bound: the true failure rate is at most this, at this confidence.

    1.0 when nothing was tried. Source: C. J. Clopper and E. S. Pearson, Biometrika 26 (1934), 404-413. Raises
    ValueError for counts that cannot be.
    """
    if not 0 <= failures <= trials or not 0 < confidence < 1:
        raise ValueError(f"{failures} failures in {trials} trials at confidence {confidence}")
    if failures == trials:
        return 1.0
    if failures == 0:
        return 1.0 - math.exp(math.log1p(-confidence) / trials)
    return _beta_quantile(failures + 1, trials - failures, confidence)


def failure_rate_lower(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """One-sided lower Clopper-Pearson bound: the true failure rate is at least this.

    Raises as the upper one.
    """
    return 1.0 - failure_rate_upper(trials - failures, trials, confidence)


def failure_rate_interval(failures: int, trials: int, confidence: float = CONFIDENCE) -> RateInterval:
    """Two-sided Clopper-Pearson interval: half of what may go wrong on either side, so it holds at `confidence`.

    With no failure, or nothing but failures, one side is certain and the other still has its half only: two-sided
    0/59 reaches up to 6.1 %, one-sided up to 5.0 %. Raises ValueError for counts that cannot be.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"{failures} failures in {trials} trials at confidence {confidence}")
    side = (1 + confidence) / 2
    low = failure_rate_lower(failures, trials, side)
    high = failure_rate_upper(failures, trials, side)
    return RateInterval(failures, trials, low, high, confidence)


def trials_for_safe(p_min: float = P_MIN, confidence: float = CONFIDENCE) -> int:
    """How many trials without a failure exclude a failure rate of `p_min` or more: ⌈ln α / ln(1 − p_min)⌉."""
    if not 0 < p_min < 1 or not 0 < confidence < 1:
        raise ValueError(f"p_min {p_min} and confidence {confidence} must lie between 0 and 1")
    return math.ceil(math.log1p(-confidence) / math.log1p(-p_min))


def rate_excluded(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The least failure rate that these counts exclude at `confidence`; 1.0 when they exclude none.

    For counts without a failure it is the inverse of `trials_for_safe`. A true rate above it is ruled out, one below
    is not: 0/14 leaves room for 19 %.
    """
    return failure_rate_upper(failures, trials, confidence)


def _beta_quantile(a: int, b: int, p: float) -> float:
    from scipy.special import betaincinv  # 0.2 s to import, and needed only once something failed

    return float(betaincinv(a, b, p))
