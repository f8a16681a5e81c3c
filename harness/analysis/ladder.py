"""The account of a bisection: what was run of each lock strategy, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from harness.analysis.belief import Counts
from harness.analysis.compare import compare_values
from harness.analysis.order import Order
from harness.core.plan import REPRODUCED

Purpose = Literal["portfolio", "explore", "price", "certify", "provoke", "compare", "refute", "witness"]
Kind = Literal["ok", "failed", "incomplete", "skipped"]

MEASURING = ("price", "compare")
"""Purposes of trials that tell what a strategy costs: nothing may run beside them."""

TRIES = 3
"""Trials that say nothing after which a strategy, a schedule or a scenario is given up as one that cannot run."""

COST_ALPHA = 0.01
"""How often two strategies of the same cost are put in another order: less than 5 %, as many pairs are compared."""

PRICED = 5
"""Good trials of each of two strategies that cannot be compared, before their cost decides which is tried first."""

IN_TURN = 8
"""Good trials of each of two strategies, one of each in turn, before one is certified because it is cheaper."""


@dataclass(frozen=True)
class Run:
    """A trial to run. `context`: number of the scenario (of a matrix); `schedule` "": the scenario's own."""

    strategy: str
    context: int
    schedule: str
    purpose: Purpose


@dataclass(frozen=True)
class Result:
    """What came of a run. `alone`: no other trial ran meanwhile, so what it cost can be compared.

    `by_lock`: it failed in a way that a lock itself can bring about (deadlock, hang), so nothing follows for strategies
    that hold less. `witness`: what to show of a failure. Times are seconds.
    """

    run: Run
    kind: Kind
    by_lock: bool = False
    witness: Mapping[str, Any] | None = None
    reason: str = ""
    startup_s: float | None = None
    tokens_per_s: float | None = None
    wait_s: float | None = None
    alone: bool = True


@dataclass(frozen=True)
class PlanResult:
    """How a hazard's plan ended under a strategy: one of the five endings; `trials` that it took.

    `context`: the scenario that this is of, while the plan has not been tried in all; None for the plan's answer, whose trials
    are those of all its scenarios. `ending` is "" of a scenario in which the search was cut short: nothing but trials.
    `witness`: of a failure that one of these trials showed, in the plan's order or not; `by_lock` is of that failure. A plan
    only makes threads wait, which whoever schedules them may do at any time, so a failure beside its order is one as well.
    """

    hazard: str
    strategy: str
    ending: str
    by_lock: bool = False
    witness: Mapping[str, Any] | None = None
    reason: str = ""
    trials: int = 1
    context: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the strategy did, in a trial of the plan."""
        return self.ending == REPRODUCED or self.witness is not None


@dataclass
class Standing:
    """One strategy's account. Trials are counted by (context, schedule), and never added up across schedules.

    `startup_s`, `tokens_per_s`, `wait_s`: of the `measured` trials, good ones of the first scenario's own schedule that ran
    alone. Beside others a trial's threads share cores and devices with those of other processes, and a strategy that keeps
    its threads from getting in each other's way then seems the faster one.
    """

    failures: dict[tuple[int, str], int] = field(default_factory=dict)
    quiet: dict[tuple[int, str], int] = field(default_factory=dict)
    silent: dict[tuple[int, str], int] = field(default_factory=dict)
    fresh: dict[tuple[int, str], int] = field(default_factory=dict)  # quiet trials of the certification
    mute: dict[tuple[int, str], int] = field(default_factory=dict)  # those of it that said nothing
    plans: dict[str, PlanResult] = field(default_factory=dict)
    unanswered: dict[str, int] = field(default_factory=dict)  # hazard → trials of its plan, which has no answer yet
    witness: Mapping[str, Any] | None = None
    failed: bool = False
    spreads: bool = False  # a failure that strategies which hold less must have too
    reason: str = ""
    skipped: bool = False
    takes_schedules: bool = True
    witness_trials: int = 0
    refute_trials: int = 0
    measured: int = 0
    unmeasured: int = 0  # trials that were to tell the cost, and said nothing
    startup_s: list[float] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)
    wait_s: list[float] = field(default_factory=list)

    def under(self, schedule: str) -> tuple[int, int, int]:
        """(failures, quiet, silent) trials under a schedule, of all scenarios."""
        failures, quiet, silent = (
            sum(count for (_, at), count in counts.items() if at == schedule)
            for counts in (self.failures, self.quiet, self.silent)
        )
        return failures, quiet, silent


class Ladder:
    """All strategies' accounts. `contexts`: the number of scenarios that an answer has to be safe in."""

    def __init__(self, order: Order, contexts: int) -> None:
        self.order = order
        self.contexts = contexts
        # A schedule orders the threads of one process (harness.control.skips).
        self.standings = {name: Standing(takes_schedules=name != "process") for name in order.names}
        self.trials = 0  # that ran, those of plans included
        self.since_failure = 0
        self.last_reason = ""
        self.beside = False  # some trials ran beside others, so costs are of those that did not
        self._in_turn: list[Result] = []
        self._cheaper: dict[tuple[str, str], bool] = {}
        self._fixed_costs: tuple[int, tuple[str, ...]] = (-1, order.names)
        self._unsafe: dict[str, str] | None = {}
        self._said = [0] * contexts  # trials that say something, by scenario
        self._silent = [0] * contexts

    # what came in

    def add(self, result: Result) -> None:
        """Count a trial."""
        self._cheaper.clear()
        if result.run.purpose == "compare" and result.alone:
            self._in_turn.append(result)
        standing = self.standings[result.run.strategy]
        key = (result.run.context, result.run.schedule)
        if result.kind in ("skipped", "incomplete"):
            standing.unmeasured += result.run.purpose == "price"
            if result.run.purpose == "certify":
                standing.mute[key] = standing.mute.get(key, 0) + 1
        if result.kind == "skipped":
            # Under another schedule only schedules are ruled out for it: there are none for several processes.
            standing.skipped = standing.skipped or not result.run.schedule
            standing.takes_schedules = standing.takes_schedules and not result.run.schedule
            standing.silent[key] = standing.silent.get(key, 0) + 1
            standing.reason = standing.reason if result.run.schedule else result.reason
            return
        self.trials += 1
        self.beside = self.beside or not result.alone
        if result.kind == "incomplete":
            self._silent[result.run.context] += not result.run.schedule
            standing.silent[key] = standing.silent.get(key, 0) + 1
            self.last_reason = result.reason
            standing.reason = standing.reason if result.run.schedule and key not in standing.mute else result.reason
            return
        self._said[result.run.context] += 1
        standing.witness_trials += result.run.purpose == "witness"
        standing.refute_trials += result.run.purpose == "refute"
        if result.kind == "failed":
            standing.failures[key] = standing.failures.get(key, 0) + 1
            standing.witness = standing.witness or result.witness
            self._failed(standing, result.by_lock)
            return
        self.since_failure += 1
        standing.quiet[key] = standing.quiet.get(key, 0) + 1
        if result.run.purpose == "certify":
            standing.fresh[key] = standing.fresh.get(key, 0) + 1
        if key == (0, "") and result.alone:
            standing.measured += 1
            for values, value in (
                (standing.startup_s, result.startup_s),
                (standing.tokens_per_s, result.tokens_per_s),
                (standing.wait_s, result.wait_s),
            ):
                if value is not None:
                    values.append(value)

    def add_plan(self, result: PlanResult) -> None:
        """Count what a plan said, or the trials of one of its scenarios while it says nothing."""
        standing = self.standings[result.strategy]
        self.trials += result.trials
        if result.context is not None:
            standing.unanswered[result.hazard] = standing.unanswered.get(result.hazard, 0) + result.trials
            return
        self.trials -= standing.unanswered.pop(result.hazard, 0)
        standing.plans[result.hazard] = result
        if result.failed:
            standing.witness = standing.witness or result.witness or {"hazard": result.hazard}
            self._failed(standing, result.by_lock)

    def _failed(self, standing: Standing, by_lock: bool) -> None:
        self.since_failure = 0
        self._unsafe = None
        standing.failed = True
        standing.spreads = standing.spreads or not by_lock

    # what follows

    def unsafe(self) -> dict[str, str]:
        """Strategy known to be unsafe → the one whose failure says so, itself if it has one of its own."""
        if self._unsafe is not None:
            return self._unsafe
        found = {name: name for name, standing in self.standings.items() if standing.failed}
        for name in reversed(self.order.names):  # the nearest in cost explains best
            if self.standings[name].spreads:
                for lower in (other for other in self.order.names if other in self.order.below[name]):
                    found[lower] = lower if self.standings[lower].failed else name
        self._unsafe = found
        return found

    def cannot_run(self, name: str) -> bool:
        """Whether it was skipped, or its trials say nothing, those of its certification at least."""
        standing = self.standings[name]
        if not standing.silent:
            return False
        if any(mute >= TRIES and mute > standing.fresh.get(at, 0) for at, mute in standing.mute.items()):
            return True
        failures, quiet, silent = standing.under("")
        return standing.skipped or (silent >= TRIES and silent > failures + quiet)

    def broken_context(self) -> int | None:
        """A scenario of which nothing says anything, under any strategy."""
        pairs = enumerate(zip(self._said, self._silent, strict=True))
        return next((context for context, (said, silent) in pairs if silent >= TRIES and not said), None)

    def tried(self, context: int, schedule: str, among: Iterable[str]) -> tuple[int, int, int]:
        """(failures, quiet, silent) of an arm, under these strategies."""
        key = (context, schedule)
        standings = [self.standings[name] for name in among]
        return (
            sum(standing.failures.get(key, 0) for standing in standings),
            sum(standing.quiet.get(key, 0) for standing in standings),
            sum(standing.silent.get(key, 0) for standing in standings),
        )

    def counts(self, arms: Sequence[tuple[int, str]]) -> Counts:
        """For the belief. A failure that does not spread is left out; a plan's witness counts as one in the first arm."""
        found = []
        for name, standing in self.standings.items():
            by_plan = standing.spreads and not standing.failures
            for number, arm in enumerate(arms):
                failures = standing.failures.get(arm, 0) if standing.spreads else 0
                failures += by_plan and number == 0
                quiet = standing.quiet.get(arm, 0)
                if failures or quiet:
                    found.append((name, number, failures, quiet))
        return tuple(found)

    def cheapest_first(self) -> tuple[str, ...]:
        """The order of cost: as given, but one that is measurably cheaper goes before the others; those that were not
        measured stay where they are.

        Throughput decides; where no difference can be told, the time until all workers are warm; else the order given.
        """
        measured = [name for name in self.order.names if len(self.standings[name].startup_s) >= PRICED]
        if len(measured) < 2:
            return self.order.names
        if self._fixed_costs[0] != self.trials:
            self._fixed_costs = (self.trials, self._sorted_by_cost())
        return self._fixed_costs[1]

    def _sorted_by_cost(self) -> tuple[str, ...]:
        found: list[str] = []
        for name in self.order.names:
            at = len(found)
            for place in range(len(found) - 1, -1, -1):
                if len(self.standings[found[place]].startup_s) < PRICED:
                    continue
                if not self.cheaper(name, found[place]):
                    break
                at = place
            found.insert(at, name)
        return tuple(found)

    def cheaper(self, one: str, other: str) -> bool:
        """Whether `one` is measurably cheaper than `other`."""
        if (one, other) not in self._cheaper:
            a, b = self.costs(one, other)
            steady = _compare(b.tokens_per_s, a.tokens_per_s, "higher")
            word = _compare(b.startup_s, a.startup_s, "lower") if steady is None else steady
            self._cheaper[one, other] = word == "faster"
        return self._cheaper[one, other]

    def costs(self, one: str, other: str) -> tuple[Costs, Costs]:
        """What two strategies are compared by: the trials taken in turn, once these are all there; else all trials."""
        if any(self.compared(one, other).values()):
            return _all_costs(self.standings[one]), _all_costs(self.standings[other])
        stretch = self._stretch(one, other)
        return _costs_of(stretch, one), _costs_of(stretch, other)

    def unpriced(self, name: str) -> int:
        """Good trials that run alone which its cost still lacks; a strategy whose trials for it say nothing is given up."""
        standing = self.standings[name]
        given_up = standing.unmeasured >= TRIES and standing.unmeasured > standing.measured
        return 0 if given_up else max(0, PRICED - standing.measured)

    def compared(self, one: str, other: str) -> dict[str, int]:
        """Strategy → good trials in turn with the other that are still to be made; one that gives none is given up."""
        left = {}
        for name in (one, other):
            kinds = [result.kind for result in self._stretch(one, other) if result.run.strategy == name]
            good = kinds.count("ok")
            left[name] = 0 if len(kinds) - good >= TRIES else max(0, IN_TURN - good)
        return left

    def _stretch(self, one: str, other: str) -> list[Result]:
        """The longest row of trials taken in turn that are of these two and nobody else."""
        groups = groupby(self._in_turn, lambda result: result.run.strategy in (one, other))
        return max((list(group) for ours, group in groups if ours), key=len, default=[])


@dataclass(frozen=True)
class Costs:
    """What good trials took: seconds until all workers were warm, and steady tokens a second."""

    startup_s: Sequence[float]
    tokens_per_s: Sequence[float]


def _all_costs(standing: Standing) -> Costs:
    return Costs(standing.startup_s, standing.tokens_per_s)


def _costs_of(results: Sequence[Result], name: str) -> Costs:
    good = [result for result in results if result.run.strategy == name and result.kind == "ok"]
    return Costs(
        [result.startup_s for result in good if result.startup_s is not None],
        [result.tokens_per_s for result in good if result.tokens_per_s is not None],
    )


def _compare(before: Sequence[float], after: Sequence[float], better: Literal["higher", "lower"]) -> str | None:
    if min(len(before), len(after)) < PRICED:
        return None
    found = compare_values(before, after, better=better, alpha=COST_ALPHA)
    return found.word if found.told else None
