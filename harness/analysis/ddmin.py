"""The smallest set that still works, when whether it works shows only by chance.

*Works* means here: no failure. One failure proves that a set does not work, and that no subset of it does; that it works
is certified by n = ⌈ln α / ln(1 − p_min)⌉ fresh trials without one. In between a set is taken to work after a screening
of fewer trials; if a certification later proves that wrong, the search goes back and takes that into account. So the
answer is 1-minimal at the stated confidence: it is certified, and without any one of its members a failure was seen.

After A. Zeller and R. Hildebrandt, Simplifying and isolating failure-inducing input (IEEE TSE 28, 2002), whose test is
assumed to be certain; what is kept here is what passes, not what fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from harness.analysis.intervals import P_MIN, trials_for_safe

Members = frozenset[str]


@dataclass(frozen=True)
class Trial:
    """A trial to run with this set. `context`: number of the scenario."""

    members: Members
    context: int
    purpose: Literal["screen", "certify"]


@dataclass(frozen=True)
class Minimal:
    """`members`: a smallest set that works, certified; None when not even all of them together do."""

    members: Members | None


@dataclass
class Tested:
    """What was seen of one set: trials by scenario, fresh ones of its certification too."""

    failures: int = 0
    spreads: bool = False  # one of the failures is not of the set's own making
    quiet: dict[int, int] = field(default_factory=dict)
    fresh: dict[int, int] = field(default_factory=dict)


class _Unknown(Exception):  # not an error: the search has come to where it needs a trial
    def __init__(self, trial: Trial) -> None:
        super().__init__(trial)
        self.trial = trial


class Minimiser:
    """Give it results; it says what is next. Pure: the same results lead to the same next step.

    `elements`: in the order in which they are tried to be dropped. `possible`: whether a set can be tried at all; a set
    that cannot counts as one that does not work. `instead`: element → a lesser one that may take its place.
    """

    def __init__(
        self,
        elements: Sequence[str],
        *,
        p_min: float = P_MIN,
        alpha: float = 0.05,
        contexts: int = 1,
        possible: Callable[[Members], bool] = lambda members: True,
        instead: Mapping[str, str] | None = None,
    ) -> None:
        self.elements = tuple(elements)
        self.tested: dict[Members, Tested] = {}
        self.possible = possible
        self.instead = dict(instead or {})
        self._contexts = contexts
        self._certify = trials_for_safe(p_min, 1 - alpha)
        # A set that fails at the rate p_min passes its screening with the chance 1 / (elements + 2). About so many sets
        # are tried, so all of them together pass screening *and* certification with a chance of alpha at most.
        self._screen = min(self._certify, math.ceil(math.log(len(self.elements) + 2) / -math.log1p(-p_min)))

    def record(self, trial: Trial, failed: bool, *, spreads: bool = True) -> None:
        """Take in what came of a trial that says something. `spreads`: a failure that every subset has, too."""
        tested = self.tested.setdefault(trial.members, Tested())
        if failed:
            tested.failures += 1
            tested.spreads = tested.spreads or spreads
            return
        tested.quiet[trial.context] = tested.quiet.get(trial.context, 0) + 1
        if trial.purpose == "certify":
            tested.fresh[trial.context] = tested.fresh.get(trial.context, 0) + 1

    def next(self) -> Trial | Minimal:
        """What to run, or the answer."""
        try:
            return Minimal(self._search())
        except _Unknown as unknown:
            return unknown.trial

    def batch(self, size: int) -> Minimal | list[Trial]:
        """As `next`, for several trials at once, all of one set."""
        first = self.next()
        if isinstance(first, Minimal):
            return first
        wanted = self._certify if first.purpose == "certify" else self._screen
        left = [
            Trial(first.members, context, first.purpose)
            for context in range(self._contexts)
            for _ in range(wanted - self._done(first.members, context, first.purpose))
        ]
        return left[:size]

    def works(self, members: Members) -> bool | None:
        """Known by now: False after a failure of it or of a larger set, True when certified, else None."""
        if not self.possible(members):
            return False
        for other, tested in self.tested.items():
            if tested.failures and (members == other or (tested.spreads and members < other)):
                return False
        certified = (other for other in self.tested if other <= members and self.certified(other))
        return True if next(certified, None) is not None else None

    # the search, from the beginning each time: it stops where something is unknown

    def _search(self) -> Members | None:
        for start in (frozenset(), frozenset(self.elements)):
            if self._seems_to_work(start):
                found = self._reduced(start)
                if self._passes(found):
                    return found
                return self._search()
        return None

    def _reduced(self, members: Members) -> Members:
        parts = 2
        while len(members) > 1:
            smaller = next((s for s in self._splits(members, parts) if self._seems_to_work(s)), None)
            if smaller is not None:
                members, parts = smaller, min(max(parts - 1, 2), len(smaller))
            elif parts < len(members):
                parts = min(len(members), 2 * parts)
            else:
                break
        for element in self._listed(members):
            lesser = self.instead.get(element)
            other = members - {element} | {lesser} if lesser else members
            if other != members and self._seems_to_work(other):
                return self._reduced(other)
        return members

    def _splits(self, members: Members, parts: int) -> Iterator[Members]:
        """The parts, then what is left without each of them; no set twice, and no single element but as what is left."""
        listed = self._listed(members)
        bounds = [len(listed) * index // parts for index in range(parts + 1)]
        chunks = [frozenset(listed[a:b]) for a, b in pairwise(bounds)]
        if parts < len(listed):
            yield from chunks
        if parts > 2 or parts == len(listed):
            yield from (members - chunk for chunk in chunks)

    def _listed(self, members: Members) -> list[str]:
        order = [*self.elements, *self.instead.values()]
        return sorted(members, key=order.index)

    def _seems_to_work(self, members: Members) -> bool:
        known = self.works(members)
        if known is not None:
            return known
        for context in range(self._contexts):
            if self._done(members, context, "screen") < self._screen:
                raise _Unknown(Trial(members, context, "screen"))
        return True

    def _passes(self, members: Members) -> bool:
        known = self.works(members)
        if known is False or self.certified(members):
            return known is not False
        context = min(range(self._contexts), key=lambda context: self._done(members, context, "certify"))
        raise _Unknown(Trial(members, context, "certify"))

    def certified(self, members: Members) -> bool:
        """Whether its own certification is complete."""
        return all(self._done(members, context, "certify") >= self._certify for context in range(self._contexts))

    def _done(self, members: Members, context: int, purpose: str) -> int:
        tested = self.tested.get(members)
        if tested is None:
            return 0
        return (tested.fresh if purpose == "certify" else tested.quiet).get(context, 0)
