"""One pass over the rows of a run → everything a report says of them. Memory grows with kinds, not with trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.analysis.numerics import agrees, within_noise
from harness.analysis.stuck import STUCK, whoever_ended
from harness.analysis.summary import Collector, RunSummary
from harness.control.request import Row
from harness.core.outcome import OK
from harness.report.chosen import Chooser
from harness.report.tallies import Tallies
from harness.report.text import without_numbers

MOST_STACKS = 100
"""Kinds of error whose stacks are kept; of further kinds the counts."""

MOST_KINDS = 100
MOST_EXAMPLES = 5

Group = TypeVar("Group")


class Groups(Generic[Group]):
    """At most `MOST_KINDS` groups by key; `others` counts what found no place."""

    def __init__(self) -> None:
        self.found: dict[str, Group] = {}
        self.others = 0

    def at(self, key: str, fresh: Group) -> Group | None:
        """The group of that key: `fresh` when it is the first of its kind, None when there is no room for it."""
        if key not in self.found and len(self.found) >= MOST_KINDS:
            self.others += 1
            return None
        return self.found.setdefault(key, fresh)

    def values(self) -> list[Group]:
        """The groups, in the order in which they were made."""
        return list(self.found.values())


@dataclass
class Measures:
    """The measurements of a scenario's trials: seconds until warm, and tokens a second of those that ended ok."""

    startup_s: list[float] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)


@dataclass
class Occasion:
    """Trials in which the same happened, with the first as the example."""

    label: str
    text: str
    trial: str
    scenario_id: str
    count: int = 0
    scenarios: dict[str, int] = field(default_factory=dict)
    worker: str = ""
    step: int | None = None
    stack: str = ""
    exit: Mapping[str, Any] = field(default_factory=dict)
    last_events: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, scenario_id: str) -> None:
        """Once more, in this scenario."""
        self.count += 1
        self.scenarios[scenario_id] = self.scenarios.get(scenario_id, 0) + 1


@dataclass
class Oracle:
    """A comparison that was made after trials: what it came to, and the first texts of those that differed."""

    agreed: int = 0
    within_noise: int = 0  # of those that agreed: only as the reference differs from itself
    differed: int = 0
    unavailable: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[str, str]] = field(default_factory=list)


class Gathered:
    """What `gather` found. `of_run` is complete once every row was added."""

    def __init__(self) -> None:
        self._collector = Collector()
        self._kinds: dict[str, bool] = {}  # fingerprint → whether an error that names a tracer was seen
        self.rows = 0
        self.measures: dict[str, Measures] = {}
        self.dense: Groups[Occasion] = Groups()
        self.dense_elsewhere = 0
        self.dense_trials = 0
        self.stuck: Groups[Occasion] = Groups()
        self.findings: Groups[Occasion] = Groups()
        self.oracles: Groups[Oracle] = Groups()
        self.errors_dropped = 0
        self.probes_off: dict[str, int] = {}
        self.software: dict[tuple[str, str], int] = {}
        self.tallies: dict[str, Tallies] = {}
        self.chooser = Chooser()

    def add(self, row: Row) -> None:
        """Count one row, which must be sound."""
        self.rows += 1
        self._collector.add({**row, "errors": [self._slim(error, row["scenario_id"]) for error in row["errors"]]})
        self.errors_dropped += row["errors_dropped"]
        self._measure(row)
        self._add_dense(row)
        self._add_stuck(row)
        self._add_findings(row)
        self._add_oracles(row)
        self.tallies.setdefault(row["scenario_id"], Tallies()).add(row)
        self.chooser.add(row)
        for probe, state in row["probes"].items():
            if state == "off":
                self.probes_off[probe] = self.probes_off.get(probe, 0) + 1
        if row["torch"]:
            key = (row["torch"], row["python"])
            self.software[key] = self.software.get(key, 0) + 1

    def of_run(self, order: Iterable[str]) -> RunSummary:
        """Scenarios, errors and unavailable probes; scenarios in `order` (ids) first."""
        return self._collector.summary(order)

    def _slim(self, error: Mapping[str, Any], scenario_id: str) -> Mapping[str, Any]:
        """The error, without its stacks where it cannot become the witness of its kind, or there are too many kinds."""
        error = {**error, "scenario_id": scenario_id}
        fingerprint = error["fingerprint"]
        traced = bool(error["tracers"])
        known = self._kinds.get(fingerprint)
        if known is None and len(self._kinds) < MOST_STACKS:
            self._kinds[fingerprint] = traced
            return error
        if known is False and traced:
            self._kinds[fingerprint] = True
            return error
        return {**error, "traceback": "", "tracers": [{**tracer, "stack": ""} for tracer in error["tracers"]]}

    def _measure(self, row: Row) -> None:
        measures = self.measures.setdefault(row["scenario_id"], Measures())
        if row["startup_s"] is not None:
            measures.startup_s.append(row["startup_s"])
        if row["tokens_per_s"] is not None and row["outcome"] == OK:
            measures.tokens_per_s.append(row["tokens_per_s"])

    def _add_dense(self, row: Row) -> None:
        self.dense_trials += row["dense_calls"] > 0
        attributed = 0
        for name, worker in row["workers"].items():
            calls, facts = worker.get("dense_calls"), worker.get("facts")
            stack = facts.get("first_dense_stack") if isinstance(facts, dict) else None
            if not isinstance(calls, int) or calls <= 0:
                continue
            attributed += calls
            stack = stack if isinstance(stack, str) else ""
            group = self.dense.at(without_numbers(stack[-4_000:]), _occasion(row, "dense", stack=stack[-64_000:]))
            if group is not None:
                if not group.count:
                    step = facts.get("first_dense_step") if isinstance(facts, dict) else None
                    group.worker, group.step = name, step if isinstance(step, int) else None
                group.add(row["scenario_id"])
        self.dense_elsewhere += max(0, row["dense_calls"] - attributed)

    def _add_stuck(self, row: Row) -> None:
        for label in row["outcomes"]:
            if label not in STUCK:
                continue
            group = self.stuck.at(
                f"{label}: {without_numbers(whoever_ended(row['reason']))}",
                _occasion(row, label, row["reason"], exit=row["exit"], last_events=row["last_events"]),
            )
            if group is not None:
                group.add(row["scenario_id"])

    def _add_findings(self, row: Row) -> None:
        seen = set()
        for problem in row["problems"]:
            label, text = str(problem.get("label", ""))[:50], str(problem.get("text", ""))[:1000]
            key = f"{label}: {without_numbers(text)}"
            if key in seen:
                continue
            seen.add(key)
            group = self.findings.at(key, _occasion(row, label, text))
            if group is not None:
                group.add(row["scenario_id"])

    def _add_oracles(self, row: Row) -> None:
        for name, said in row["oracles"].items():
            oracle = self.oracles.at(name, Oracle())
            if oracle is None:
                continue
            if agrees(said):
                oracle.agreed += 1
                oracle.within_noise += within_noise(said)
            elif said.startswith("unavailable"):
                why = said.partition(":")[2].strip() or "no reason given"
                why = why if why in oracle.unavailable or len(oracle.unavailable) < MOST_EXAMPLES else "other reasons"
                oracle.unavailable[why] = oracle.unavailable.get(why, 0) + 1
            else:
                oracle.differed += 1
                if len(oracle.examples) < MOST_EXAMPLES:
                    oracle.examples.append((row["trial"], said))


def _occasion(row: Row, label: str, text: str = "", **rest: Any) -> Occasion:
    return Occasion(label, text, row["trial"], row["scenario_id"], **rest)


def gather(rows: Iterable[Row]) -> Gathered:
    """Add up rows of `harness.report.source`; each trial must come once."""
    gathered = Gathered()
    for row in rows:
        gathered.add(row)
    return gathered
