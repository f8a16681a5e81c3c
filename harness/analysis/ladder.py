"""The account of a bisection: what was run of each lock strategy, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.analysis.belief import Counts
from harness.analysis.compare import compare_values
from harness.analysis.order import Order

Purpose = Literal["portfolio", "explore", "price", "certify", "refute", "witness"]
Kind = Literal["ok", "failed", "incomplete", "skipped"]

TRIES = 3
"""Trials that say nothing after which a strategy, a schedule or a scenario is given up as one that cannot run."""

PRICED = 5
"""Good trials of each of two strategies that cannot be compared, before their cost decides which is tried first."""


@dataclass(frozen=True)
class Run:
    """A trial to run. `context`: number of the scenario (of a matrix); `schedule` "": the scenario's own."""

    strategy: str
    context: int
    schedule: str
    purpose: Purpose


@dataclass(frozen=True)
class Result:
    """What came of a run.

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


@dataclass(frozen=True)
class PlanResult:
    """How a hazard's plan ended under a strategy: one of the five endings; `trials` that it took."""

    hazard: str
    strategy: str
    ending: str
    by_lock: bool = False
    witness: Mapping[str, Any] | None = None
    reason: str = ""
    trials: int = 1


@dataclass
class Standing:
    """One strategy's account. Trials are counted by (context, schedule), and never added up across schedules."""

    failures: dict[tuple[int, str], int] = field(default_factory=dict)
    quiet: dict[tuple[int, str], int] = field(default_factory=dict)
    silent: dict[tuple[int, str], int] = field(default_factory=dict)
    fresh: dict[int, int] = field(default_factory=dict)  # context → quiet trials of the certification
    plans: dict[str, PlanResult] = field(default_factory=dict)
    witness: Mapping[str, Any] | None = None
    failed: bool = False
    spreads: bool = False  # a failure that strategies which hold less must have too
    reason: str = ""
    skipped: bool = False
    witness_trials: int = 0
    refute_trials: int = 0
    startup_s: list[float] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)
    wait_s: list[float] = field(default_factory=list)

    def own(self, which: Literal["failures", "quiet"], contexts: int) -> int:
        """Trials under the scenarios' own schedule."""
        counts: dict[tuple[int, str], int] = getattr(self, which)
        return sum(counts.get((context, ""), 0) for context in range(contexts))


class Ladder:
    """All strategies' accounts. `contexts`: the number of scenarios that an answer has to be safe in."""

    def __init__(self, order: Order, contexts: int) -> None:
        self.order = order
        self.contexts = contexts
        self.standings = {name: Standing() for name in order.names}
        self.trials = 0  # that ran, those of plans included
        self.since_failure = 0
        self.last_reason = ""
        self._fixed_costs: tuple[int, tuple[str, ...]] = (-1, order.names)

    # what came in

    def add(self, result: Result) -> None:
        """Count a trial."""
        standing = self.standings[result.run.strategy]
        key = (result.run.context, result.run.schedule)
        if result.kind == "skipped":
            standing.skipped = True
            standing.reason = result.reason
            return
        self.trials += 1
        if result.kind == "incomplete":
            standing.silent[key] = standing.silent.get(key, 0) + 1
            standing.reason = self.last_reason = result.reason
            return
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
            standing.fresh[result.run.context] = standing.fresh.get(result.run.context, 0) + 1
        if key == (0, ""):
            for values, value in (
                (standing.startup_s, result.startup_s),
                (standing.tokens_per_s, result.tokens_per_s),
                (standing.wait_s, result.wait_s),
            ):
                if value is not None:
                    values.append(value)

    def add_plan(self, result: PlanResult) -> None:
        """Count what a plan said."""
        standing = self.standings[result.strategy]
        standing.plans[result.hazard] = result
        self.trials += result.trials
        if result.ending == "reproduced":
            standing.witness = standing.witness or result.witness or {"hazard": result.hazard}
            self._failed(standing, result.by_lock)

    def _failed(self, standing: Standing, by_lock: bool) -> None:
        self.since_failure = 0
        standing.failed = True
        standing.spreads = standing.spreads or not by_lock

    # what follows

    def unsafe(self) -> dict[str, str]:
        """Strategy known to be unsafe → the one whose failure says so, itself if it has one of its own."""
        found = {name: name for name, standing in self.standings.items() if standing.failed}
        for name in reversed(self.order.names):  # the nearest in cost explains best
            if self.standings[name].spreads:
                for lower in self.order.below[name]:
                    found[lower] = lower if self.standings[lower].failed else name
        return found

    def cannot_run(self, name: str) -> bool:
        """Whether it was skipped, or its trials say nothing."""
        standing = self.standings[name]
        silent = sum(count for (_, schedule), count in standing.silent.items() if not schedule)
        return standing.skipped or (silent >= TRIES and silent > standing.own("quiet", self.contexts))

    def broken_context(self) -> int | None:
        """A scenario of which nothing says anything, under any strategy."""
        for context in range(self.contexts):
            said = sum(
                count
                for standing in self.standings.values()
                for counts in (standing.failures, standing.quiet)
                for (at, _), count in counts.items()
                if at == context
            )
            silent = sum(s.silent.get((context, ""), 0) for s in self.standings.values())
            if silent >= TRIES and not said:
                return context
        return None

    def tried(self, context: int, schedule: str, among: Iterable[str]) -> tuple[int, int, int]:
        """(failures, quiet, silent) of an arm, under these strategies."""
        key = (context, schedule)
        standings = [self.standings[name] for name in among]
        return (
            sum(standing.failures.get(key, 0) for standing in standings),
            sum(standing.quiet.get(key, 0) for standing in standings),
            sum(standing.silent.get(key, 0) for standing in standings),
        )

    def counts(self) -> Counts:
        """For the belief, which alone takes the schedules together. A failure that does not spread is left out."""
        found = []
        for name, standing in self.standings.items():
            for context in range(self.contexts):
                failures = sum(n for (at, _), n in standing.failures.items() if at == context)
                quiet = sum(n for (at, _), n in standing.quiet.items() if at == context)
                if not standing.spreads:
                    failures = 0
                elif not failures and context == 0 and not standing.failures:
                    failures = 1  # a plan's witness
                if failures or quiet:
                    found.append((name, context, failures, quiet))
        return tuple(found)

    def cheapest_first(self) -> tuple[str, ...]:
        """The order of cost: as given, but one that is measurably cheaper goes before its neighbour.

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
            while at and self.cheaper(name, found[at - 1]):
                at -= 1
            found.insert(at, name)
        return tuple(found)

    def cheaper(self, one: str, other: str) -> bool:
        """Whether `one` is measurably cheaper than `other`."""
        a, b = self.standings[one], self.standings[other]
        steady = _compare(b.tokens_per_s, a.tokens_per_s, "higher")
        return (_compare(b.startup_s, a.startup_s, "lower") if steady is None else steady) == "faster"


def _compare(before: Sequence[float], after: Sequence[float], better: Literal["higher", "lower"]) -> str | None:
    if min(len(before), len(after)) < PRICED:
        return None
    found = compare_values(before, after, better=better)
    return found.word if found.told else None
