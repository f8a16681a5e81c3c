"""Which hazards' plans a bisection asks of which strategies, and which it can ask side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from harness.analysis.ladder import Ladder
from harness.core.plan import EXCLUDED

TRIALS_EACH = 2
"""Jobs that one plan keeps busy: one trial at first, and several once it looks for the workers that fit it."""


@dataclass(frozen=True)
class Ask:
    """A plan to run: is this hazard possible under this strategy?"""

    hazard: str
    strategy: str


class PlanQuestions:
    """What is still to be asked as the ladder stands, weaker strategies first.

    A strategy that failed is asked nothing more. A hazard that a lock stood against under a strategy that holds less is not
    asked again, unless it is one of `by_locks`: of failures that a lock can bring about by itself.
    """

    def __init__(self, ladder: Ladder, hazards: Sequence[str], by_locks: Collection[str]) -> None:
        self._ladder = ladder
        self._order = ladder.order
        self._hazards = tuple(hazards)
        self._by_locks = frozenset(by_locks)

    def first(self) -> Ask | None:
        """The next one; None when all is answered."""
        return next(self._open(), None)

    def beside_each_other(self, size: int) -> list[Ask]:
        """The next one and others, at most `size`.

        First those that will be asked in any case: no answer to one before it, asked now or later, can save the trials. Where
        they are few, more plans of the same strategies, up to one for each `TRIALS_EACH` jobs: only a failure makes these
        needless, which ends them too, and one after another they would leave most jobs idle.
        """
        sure: list[Ask] = []
        more: list[Ask] = []
        earlier: list[Ask] = []
        for ask in self._open():
            savers = [other for other in earlier if self._may_save(other, ask)]
            if not savers:
                sure.append(ask)
            elif all(other.strategy == ask.strategy for other in savers):
                more.append(ask)
            earlier.append(ask)
        sure = sure[:size]
        beside = {ask.strategy for ask in sure}
        more = [ask for ask in more if ask.strategy in beside]
        return sure + more[: max(0, size // TRIALS_EACH - len(sure))]

    def _open(self) -> Iterator[Ask]:
        for name in self._order.names if self._hazards else ():
            standing = self._ladder.standings[name]
            for hazard in self._hazards:
                if standing.failed or hazard in standing.plans or self._ladder.cannot_run(name):
                    continue
                if not self._excluded_below(hazard, name):
                    yield Ask(hazard, name)

    def _excluded_below(self, hazard: str, name: str) -> bool:
        """A lock stood against the plan under a strategy that holds less, so it does under this one too."""
        found = (self._ladder.standings[lower].plans.get(hazard) for lower in self._order.below[name])
        return hazard not in self._by_locks and any(plan is not None and plan.ending == EXCLUDED for plan in found)

    def _may_save(self, one: Ask, other: Ask) -> bool:
        """Whether the answer to `one` can make `other` needless: a witness of the strategy, or excluded by less than it."""
        if one.strategy == other.strategy:
            return True
        below = one.strategy in self._order.below[other.strategy]
        return below and one.hazard == other.hazard and other.hazard not in self._by_locks
