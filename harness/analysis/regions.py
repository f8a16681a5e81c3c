"""The smallest set of regions whose exclusive first use is safe, in three ways of holding them, the least first.

Each region held by itself until it was done once (`each:`); if even all of them are not enough, one hold over a stretch
of them (`span:`); if that is not enough, one hold over all, and nobody goes on until all workers are warm
(`warmup_barrier`). Within each way by delta debugging (`analysis.ddmin`).

Screenings go round the schedules of the portfolio; a certification is held under the one that sets of regions failed most
under. To hold more can make a failure *likelier*: whoever is through with a long hold meets those who still stand in line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.analysis.ddmin import Members, Minimal, Minimiser, Trial
from harness.analysis.intervals import P_MIN, failure_rate_upper, trials_for_safe
from harness.analysis.ladder import TRIES
from harness.analysis.verdicts import NOTHING_TO_FIX, Verdict

REGIONS = ("mask", "forward", "loss", "backward")
"""What a step consists of; `attention` stands for `forward` where that is enough."""

_IN_ORDER = ("mask", "forward", "attention", "loss", "backward")

BY_THEMSELVES = "each by itself, until it was done once"
ONE_HOLD = "in one hold, until it was done once"
UNTIL_WARM = "in one hold, and nobody goes on until all are warm"


@dataclass(frozen=True)
class RegionTrial:
    """A trial to run with this lock strategy; `schedule` "": the scenario's own."""

    lock: str
    context: int
    schedule: str
    purpose: str
    way: int
    of: Trial


@dataclass(frozen=True)
class TestedSet:
    """What was seen of one set of regions. `trials` and `failures`: under `schedule`, on which the verdict rests;
    `schedules` has the counts of each, which are never added up; `failure_rate_upper` is of the scenario with most.
    """

    regions: tuple[str, ...]
    lock: str
    verdict: Verdict
    trials: int
    failures: int
    failure_rate_upper: float
    schedule: str
    schedules: Mapping[str, Mapping[str, int]]
    witness: Mapping[str, Any] | None


@dataclass(frozen=True)
class RegionAnswer:
    """`answer`: the lock strategy, None where none is safe; `regions` and `hold`: the same in words."""

    answer: str | None
    regions: tuple[str, ...]
    hold: str
    verdict: Verdict
    conclusion: str
    tested: tuple[TestedSet, ...]
    trials_total: int
    p_min: float
    confidence: float
    open: tuple[str, ...]
    stopped: str


@dataclass
class _Way:
    """One way of holding: its search, and the name of the lock for a set."""

    hold: str
    search: Minimiser
    lock: Callable[[Members], str]
    witnesses: dict[Members, Mapping[str, Any]] = field(default_factory=dict)


class RegionSearch:
    """Give it results; it says what is next. `contexts`: number of scenarios an answer must be safe in; `portfolio`:
    schedules besides the scenario's own.
    """

    def __init__(
        self, *, p_min: float = P_MIN, alpha: float = 0.05, contexts: int = 1, portfolio: Sequence[str] = ()
    ) -> None:
        self._schedules = ("", *portfolio)
        self._contexts = contexts
        self._counts: dict[tuple[str, str], list[int]] = {}  # (lock, schedule) → failures, quiet
        self._in_context: dict[tuple[str, str, int], list[int]] = {}  # the same by scenario
        self._certified_under: dict[str, str] = {}
        self._p_min, self._alpha = p_min, alpha
        self._needed = trials_for_safe(p_min, 1 - alpha)
        numbers: dict[str, Any] = {"p_min": p_min, "alpha": alpha, "contexts": contexts}
        # Single regions, and none, were tried by themselves before one hold is.
        span = Minimiser(REGIONS, **numbers, possible=lambda members: len(members) > 1 and _is_stretch(members))
        barrier = Minimiser(("all",), **numbers, possible=bool)
        self._ways = [
            _Way(BY_THEMSELVES, Minimiser(REGIONS, **numbers, instead={"forward": "attention"}), _each),
            _Way(ONE_HOLD, span, _span),
            _Way(UNTIL_WARM, barrier, lambda members: "warmup_barrier"),
        ]
        self._silent: dict[str, int] = {}
        self._reason = ""
        self.trials = 0

    def record(
        self,
        trial: RegionTrial,
        failed: bool | None,
        *,
        spreads: bool = True,
        reason: str = "",
        witness: Mapping[str, Any] | None = None,
    ) -> None:
        """Take in a trial; `failed` None: it says nothing, for that reason. `spreads`: see `Minimiser.record`."""
        self.trials += 1
        if failed is None:
            self._silent[trial.lock] = self._silent.get(trial.lock, 0) + 1
            self._reason = reason
            return
        self._counts.setdefault((trial.lock, trial.schedule), [0, 0])[not failed] += 1
        self._in_context.setdefault((trial.lock, trial.schedule, trial.context), [0, 0])[not failed] += 1
        if trial.purpose == "certify":
            self._certified_under[trial.lock] = trial.schedule
        way = self._ways[trial.way]
        way.search.record(trial.of, failed, spreads=spreads)
        if failed and witness is not None:
            way.witnesses.setdefault(trial.of.members, witness)

    def trial_of(self, lock: str, context: int, schedule: str, purpose: str) -> RegionTrial:
        """The trial that a row was of. Raises ValueError for a lock that no set has."""
        for number, way in enumerate(self._ways):
            for members in _subsets([*way.search.elements, *way.search.instead.values()]):
                if way.search.possible(members) and way.lock(members) == lock:
                    of = Trial(members, context, "certify" if purpose == "certify" else "screen")
                    return RegionTrial(lock, context, schedule, purpose, number, of)
        raise ValueError(f"{lock} is no set of regions")

    def batch(self, size: int) -> RegionAnswer | list[RegionTrial]:
        """What to run, several at once, or the answer."""
        if self._dumb():
            return self.conclude()
        for number, way in enumerate(self._ways):
            found = way.search.batch(size)
            if isinstance(found, list):
                return [self._scheduled(way.lock(one.members), number, one, at) for at, one in enumerate(found)]
            if found.members is not None:
                return self.conclude()
        return self.conclude()

    def _scheduled(self, lock: str, way: int, trial: Trial, at: int) -> RegionTrial:
        if trial.purpose == "certify":
            schedule = self._certified_under.get(lock, self._harshest())
        else:
            done = sum(sum(counts) for (of, _), counts in self._counts.items() if of == lock)
            schedule = self._schedules[(done + at) % len(self._schedules)]
        return RegionTrial(lock, trial.context, schedule, trial.purpose, way, trial)

    def _harshest(self) -> str:
        """The schedule under which most of its trials failed, of sets that are known not to work."""
        bad = {lock for (lock, _), counts in self._counts.items() if counts[0]}

        def rate(schedule: str) -> float:
            failures, quiet = (
                sum(counts[at] for (lock, of), counts in self._counts.items() if of == schedule and lock in bad)
                for at in (0, 1)
            )
            return failures / (failures + quiet) if failures else 0.0

        return max(self._schedules, key=rate)

    def conclude(self, stopped: str = "") -> RegionAnswer:
        """The answer as things stand. `stopped`: what ended the search early, if anything did."""
        way, members = self._found()
        verdict: Verdict = "undecided"
        conclusion = "undecided"
        open_sets = tuple(
            f"{one.lock}: 0/{one.trials} failed{f' under {one.schedule}' if one.schedule else ''} "
            f"(at most {100 * one.failure_rate_upper:.0f} %)"
            for one in self._tested()
            if one.verdict == "undecided"
        )
        if self._dumb():
            verdict, conclusion = "incomplete", f"it does not run: {self._reason or 'no reason given'}"
        elif members is not None:
            verdict, conclusion = "safe", NOTHING_TO_FIX if not members else f"{way.lock(members)} is safe"
        elif all(one.search.next() == Minimal(None) for one in self._ways):
            verdict, conclusion = "unsafe", "no set of regions held at first use is safe here"
        regions = () if members is None else tuple(region for region in _IN_ORDER if region in members)
        if members is not None and way.hold == UNTIL_WARM:
            regions = REGIONS
        return RegionAnswer(
            answer=None if members is None else way.lock(members),
            regions=regions,
            hold=way.hold if members else "",
            verdict=verdict,
            conclusion=conclusion,
            tested=self._tested(),
            trials_total=self.trials,
            p_min=self._p_min,
            confidence=1 - self._alpha,
            open=open_sets if verdict == "undecided" else (),
            stopped=stopped,
        )

    def _found(self) -> tuple[_Way, Members | None]:
        for way in self._ways:
            found = way.search.next()
            if isinstance(found, Trial):
                return way, None
            if found.members is not None:
                return way, found.members
        return self._ways[-1], None

    def _tested(self) -> tuple[TestedSet, ...]:
        found = []
        for way in self._ways:
            for members, tested in way.search.tested.items():
                lock = way.lock(members)
                # To hold more than a set that is safe is not known to be: a lock can bring a deadlock about by itself.
                certified = way.search.works(members) and way.search.certified(members)
                verdict: Verdict = "unsafe" if tested.failures else "safe" if certified else "undecided"
                regions = tuple(region for region in _IN_ORDER if region in members)
                counts = {schedule: counts for (of, schedule), counts in self._counts.items() if of == lock}
                schedule = self._certified_under.get(lock) or max(
                    counts, key=lambda at: (counts[at][0], sum(counts[at]))
                )
                failures, trials = counts[schedule][0], sum(counts[schedule])
                found.append(
                    TestedSet(
                        regions=regions,
                        lock=lock,
                        verdict=verdict,
                        trials=trials,
                        failures=failures,
                        failure_rate_upper=self._upper(lock, schedule),
                        schedule=schedule,
                        schedules={at: {"trials": sum(n), "failures": n[0]} for at, n in counts.items()},
                        witness=way.witnesses.get(members),
                    )
                )
        return tuple(found)

    def _upper(self, lock: str, schedule: str) -> float:
        """Of a failure rate, in the scenario that says least: safe is said of each."""
        counts = [self._in_context.get((lock, schedule, context), [0, 0]) for context in range(self._contexts)]
        return max(failure_rate_upper(failures, failures + quiet, 1 - self._alpha) for failures, quiet in counts)

    def _dumb(self) -> bool:
        """A set does not run at all, so nothing can be said."""
        return any(count >= TRIES and count > self._spoken(lock) for lock, count in self._silent.items())

    def _spoken(self, lock: str) -> int:
        return sum(sum(counts) for (of, _), counts in self._counts.items() if of == lock)


def _is_stretch(members: Members) -> bool:
    places = sorted(REGIONS.index(region) for region in members)
    return not places or places == list(range(places[0], places[-1] + 1))


def _each(members: Members) -> str:
    return "each:" + "+".join(sorted(members, key=_IN_ORDER.index)) if members else "none"


def _span(members: Members) -> str:
    listed = sorted(members, key=REGIONS.index)
    return f"span:{listed[0]}..{listed[-1]}" if listed else ""


def _subsets(elements: Sequence[str]) -> list[Members]:
    found: list[Members] = [frozenset()]
    for element in elements:
        found += [members | {element} for members in found]
    return found
