"""How long a run will still take: a guess by what has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class _Mean:
    """Of durations, in seconds."""

    total: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        """One more."""
        self.total += seconds
        self.count += 1

    @property
    def value(self) -> float | None:
        """None before the first."""
        return self.total / self.count if self.count else None


class LeftGuess:
    """Trials and references are timed apart: a run has few references, and each may take as long as many trials.

    `references`: how many are to come or run. Both share what may run at once: the most that was seen to.
    """

    def __init__(self) -> None:
        self.references = 0
        self._trial = _Mean()
        self._reference = _Mean()
        self._most = 1

    def at_once(self, count: int) -> None:
        """So many run now."""
        self._most = max(self._most, count)

    def trial_took(self, seconds: float) -> None:
        """A trial has ended."""
        self._trial.add(seconds)

    def reference_took(self, seconds: float) -> None:
        """A reference has ended."""
        self.references -= 1
        self._reference.add(seconds)

    def seconds(self, trials: int, running: Sequence[float], references: Sequence[float]) -> float | None:
        """Until `trials` more have ended, and all references. `running`, `references`: how long those that run have done so.

        None before a trial has ended, and when nothing is left. A reference that runs longer than trials do, before any
        has ended, is taken for the measure of the others.
        """
        trial = self._trial.value
        count = max(self.references, len(references))
        if trial is None or (trials <= 0 and not count):
            return None
        reference = self._reference.value or max(trial, *references, 0.0)
        left = max(0, trials) * trial - sum(min(age, trial) for age in running)
        left += count * reference - sum(min(age, reference) for age in references)
        return max(0.0, left) / self._most
