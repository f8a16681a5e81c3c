"""A test of a failure rate that stops as early as it may.

Two rates: `low` is harmless, `high` is what must be found. After each trial the test says `high`, `low` or nothing yet.
Its errors are bounds, not approximations, at any true rate and although it looks after every trial: the likelihood
ratio exceeds 1/α with probability at most α when the rate is `low` (J. Ville 1939), and the other way round. After
A. Wald, Sequential Analysis (1947), whose thresholds add the overshoot of one trial and so hold only nearly.

With `low = 0` a single failure settles it, and `low` is said after ⌈ln β / ln(1 − high)⌉ quiet trials: the certification
of a strategy as safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from harness.analysis.intervals import trials_for_safe

Said = Literal["low", "high"]


@dataclass(frozen=True)
class Operating:
    """What a test does at one true rate: the chances of each answer and of none, and the mean number of trials."""

    low: float
    high: float
    undecided: float
    mean_trials: float


@dataclass(frozen=True)
class SequentialTest:
    """`alpha`: chance of `high` when the rate is `low`; `beta`: chance of `low` when it is `high` or more.

    `most`: trials after which it gives up, None for never; to give up is no error. Raises ValueError for numbers that
    cannot be.
    """

    low: float
    high: float
    alpha: float = 0.05
    beta: float = 0.05
    most: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high < 1:
            raise ValueError(f"a sequential test needs 0 <= low < high < 1, not low {self.low}, high {self.high}")
        if not (0 < self.alpha < 1 and 0 < self.beta < 1):
            raise ValueError(f"alpha {self.alpha} and beta {self.beta} must lie between 0 and 1")
        if self.most is not None and self.most < 1:
            raise ValueError(f"a test of {self.most} trials says nothing")

    def says(self, failures: int, trials: int) -> Said | None:
        """The answer after so many trials, or None. The caller stops at the first answer."""
        if not 0 <= failures <= trials:
            raise ValueError(f"{failures} failures in {trials} trials")
        if self.low == 0 and failures:
            return "high"
        if not failures:  # in whole trials: no rounding decides whether it takes 59 or 60
            return "low" if trials >= self.quiet_trials else None
        ratio = failures * self._per_failure + (trials - failures) * self._per_quiet
        if ratio >= -math.log(self.alpha):
            return "high"
        return "low" if ratio <= math.log(self.beta) else None

    @cached_property
    def quiet_trials(self) -> int:
        """So many trials without a failure say `low`."""
        if self.low == 0:
            return trials_for_safe(self.high, 1 - self.beta)
        return math.ceil(math.log(self.beta) / self._per_quiet)

    def operating(self, rate: float, most: int | None = None) -> Operating:
        """Exact, by the distribution of failures over trials. `most` limits a test that has no limit of its own."""
        limit = self.most or most
        if limit is None:
            raise ValueError("a test without a limit needs one here")
        alive = {0: 1.0}  # failures → chance of being there, undecided
        low = high = mean = 0.0
        for trials in range(1, limit + 1):
            mean += sum(alive.values())
            reached: dict[int, float] = {}
            for failures, chance in alive.items():
                for more, part in ((1, rate), (0, 1 - rate)):
                    reached[failures + more] = reached.get(failures + more, 0.0) + chance * part
            alive = {}
            for failures, chance in reached.items():
                said = self.says(failures, trials)
                low += chance * (said == "low")
                high += chance * (said == "high")
                if said is None:
                    alive[failures] = chance
        return Operating(low, high, sum(alive.values()), mean)

    @cached_property
    def _per_failure(self) -> float:
        return math.log(self.high / self.low) if self.low else math.inf

    @cached_property
    def _per_quiet(self) -> float:
        return math.log1p(-self.high) - math.log1p(-self.low)
