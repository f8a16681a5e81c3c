"""Rows of results.jsonl → what they say of each scenario, and which errors they share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from harness.analysis.errors import ErrorGroup, add_errors
from harness.analysis.intervals import CONFIDENCE, P_MIN, failure_rate_upper, trials_for_safe
from harness.analysis.no_rate import why_no_rate
from harness.analysis.stuck import StuckGroup, add_stuck
from harness.core.outcome import FAILURES, INCOMPLETE, SKIPPED

Row = Mapping[str, Any]
Verdict = Literal["unsafe", "safe", "undecided", "incomplete"]


@dataclass(frozen=True)
class ScenarioSummary:
    """What the trials of one scenario say. The fields up to `confidence` are those of `run --json`.

    `trials` counts what ran, `conclusive` those of them that say something of the subject: the bound and the
    verdict rest on these. `unavailable` names the probes that could not work in one of them. `outcomes`
    counts the trials that have a label, so a trial with two labels is in two counts. `startup_s` and
    `tokens_per_s` are medians, in seconds and real tokens a second; None when nothing was measured. `wall_s`: what all
    trials took. `no_rate`: why a trial that ended well has no throughput, "" once one has.

    `torch`: what the trials that say something ran under, "" where that is not known or not one version. `by_torch`: of
    several, a summary of each, for trials of two versions are never counted together: safe is only what is under each,
    `failure_rate_upper` is the largest of theirs, and medians are theirs alone. Trials that died before they could name their
    torch are one of these then.
    """

    id: str
    scenario: dict[str, Any]
    trials: int
    failures: int
    outcomes: dict[str, int]
    fx_errors: int
    dense_calls: int
    compiles: int
    startup_s: float | None
    tokens_per_s: float | None
    verdict: Verdict
    failure_rate_upper: float
    confidence: float
    conclusive: int
    reason: str
    unavailable: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...] = field(repr=False)
    wall_s: float = 0.0
    no_rate: str = ""
    torch: str = ""
    by_torch: tuple[ScenarioSummary, ...] = ()

    @property
    def skipped(self) -> bool:
        """Whether it could not run here at all."""
        return self.trials == 0 and SKIPPED in self.outcomes

    @property
    def under(self) -> str:
        """`under torch 2.11.0`, of a part of `by_torch`."""
        return f"under torch {self.torch}" if self.torch else "under a torch that is not known"

    def to_json(self) -> dict[str, Any]:
        """The fields of `run --json`, in order; `by_torch` besides where there were several."""
        found = {name: getattr(self, name) for name in JSON_FIELDS}
        if self.by_torch:
            found["by_torch"] = [{name: getattr(one, name) for name in _BY_TORCH} for one in self.by_torch]
        return found


JSON_FIELDS = (
    "id",
    "scenario",
    "trials",
    "failures",
    "outcomes",
    "fx_errors",
    "dense_calls",
    "compiles",
    "startup_s",
    "tokens_per_s",
    "verdict",
    "failure_rate_upper",
    "confidence",
)
_BY_TORCH = (
    *("torch", "trials", "conclusive", "failures", "outcomes", "startup_s", "tokens_per_s", "verdict"),
    "failure_rate_upper",
)


def verdict(failures: int, conclusive: int, *, p_min: float = P_MIN, confidence: float = CONFIDENCE) -> Verdict:
    """One witnessed failure makes `unsafe`; enough trials without any, `safe`; some, `undecided`; none,
    `incomplete`.
    """
    if failures:
        return "unsafe"
    if not conclusive:
        return "incomplete"
    return "safe" if conclusive >= trials_for_safe(p_min, confidence) else "undecided"


class Tally:
    """The running account of one scenario. It keeps counts and two numbers a trial, never a row."""

    def __init__(self, scenario_id: str, scenario: Mapping[str, Any]) -> None:
        self.id = scenario_id
        self.scenario = dict(scenario)
        self.labels: list[tuple[str, ...]] = []
        self.sums = dict.fromkeys(("fx_errors", "dense_calls", "compiles"), 0)
        self.startup: list[float] = []
        self.rates: list[float] = []
        self.reason = ""
        self.walls: list[float] = []
        self.no_rate = ""
        self.unavailable: dict[str, None] = {}
        self.by_torch: dict[str, Tally] = {}

    def add(self, row: Row) -> None:
        """Count one trial, and by itself what ran under the same torch."""
        self._count(row)
        self.by_torch.setdefault(str(row.get("torch") or ""), Tally(self.id, self.scenario))._count(row)

    def _count(self, row: Row) -> None:
        labels = tuple(dict.fromkeys(row["outcomes"]))
        self.labels.append(labels)
        for name in self.sums:
            self.sums[name] += int(row.get(name) or 0)
        _keep(self.startup, row.get("startup_s"))
        if row["outcome"] == "ok":
            _keep(self.rates, row.get("tokens_per_s"))
            self.no_rate = self.no_rate or why_no_rate(row)
        _keep(self.walls, row.get("wall_s"))
        self.reason = self.reason or str(row.get("reason") or "")
        self.unavailable.update(dict.fromkeys(probe for probe, _ in unavailable_probes(row)))

    def summary(self, confidence: float = CONFIDENCE) -> ScenarioSummary:
        """What was counted so far."""
        ran = [labels for labels in self.labels if SKIPPED not in labels]
        failures = sum(any(label in FAILURES for label in labels) for labels in ran)
        silent = sum(all(label in INCOMPLETE for label in labels) for labels in ran)
        conclusive = len(ran) - silent
        outcomes: dict[str, int] = {}
        for label in (label for labels in self.labels for label in labels):
            outcomes[label] = outcomes.get(label, 0) + 1
        parts = [replace(tally.summary(confidence), torch=torch) for torch, tally in self.by_torch.items()]
        versions = {part.torch for part in parts if part.torch and part.conclusive}
        apart = tuple(part for part in parts if part.conclusive) if len(versions) > 1 else ()
        fewest = min((part.conclusive for part in apart), default=conclusive)
        upper = max((part.failure_rate_upper for part in apart), default=failure_rate_upper(failures, conclusive, confidence))
        return ScenarioSummary(
            id=self.id,
            scenario=self.scenario,
            trials=len(ran),
            failures=failures,
            outcomes=outcomes,
            **self.sums,
            startup_s=None if apart else _median(self.startup),
            tokens_per_s=None if apart else _median(self.rates),
            verdict=verdict(failures, fewest, confidence=confidence),
            failure_rate_upper=upper,
            confidence=confidence,
            conclusive=conclusive,
            reason=self.reason,
            unavailable=tuple(self.unavailable),
            labels=tuple(self.labels),
            wall_s=sum(self.walls),
            no_rate="" if self.rates else self.no_rate,
            torch="" if apart else next(iter(versions), ""),
            by_torch=apart,
        )


@dataclass(frozen=True)
class RunSummary:
    """What all rows say.

    `unavailable`: probe → reason → number of trials. `torch`: as the subjects saw it, or "".
    """

    scenarios: tuple[ScenarioSummary, ...]
    errors: tuple[ErrorGroup, ...]
    unavailable: dict[str, dict[str, int]]
    torch: str
    stuck: tuple[StuckGroup, ...] = ()


class Collector:
    """Adds rows up as they come; memory grows with scenarios and kinds of error, not with rows' size."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._errors: dict[str, ErrorGroup] = {}
        self._stuck: dict[str, StuckGroup] = {}
        self._unavailable: dict[str, dict[str, int]] = {}
        self._torch = ""

    def add(self, row: Row) -> None:
        """Count one trial's row."""
        scenario_id = row["scenario_id"]
        if scenario_id not in self._tallies:
            self._tallies[scenario_id] = Tally(scenario_id, row["scenario"])
        self._tallies[scenario_id].add(row)
        add_errors(self._errors, row)
        add_stuck(self._stuck, row)
        self._torch = self._torch or str(row.get("torch") or "")
        for probe, why in unavailable_probes(row):
            reasons = self._unavailable.setdefault(probe, {})
            reasons[why] = reasons.get(why, 0) + 1

    def scenario(self, scenario_id: str) -> ScenarioSummary | None:
        """One scenario so far; None before its first row."""
        tally = self._tallies.get(scenario_id)
        return tally.summary() if tally else None

    def summary(self, order: Iterable[str] = ()) -> RunSummary:
        """Everything so far; scenarios in `order` (ids) first, others as they came."""
        ids = [*(name for name in order if name in self._tallies)]
        listed = set(ids)
        ids += [name for name in self._tallies if name not in listed]
        groups = sorted(self._errors.values(), key=lambda group: (-group.trials, -group.count, group.fingerprint))
        return RunSummary(
            tuple(self._tallies[name].summary() for name in ids),
            tuple(groups),
            dict(sorted(self._unavailable.items())),
            self._torch,
            tuple(sorted(self._stuck.values(), key=lambda group: -group.trials)),
        )


def summarise(rows: Iterable[Row], order: Iterable[str] = ()) -> RunSummary:
    """Add up all rows; each trial must come once."""
    collector = Collector()
    for row in rows:
        collector.add(row)
    return collector.summary(order)


def unavailable_probes(row: Row) -> list[tuple[str, str]]:
    """(probe, why) for each probe that could not work in this trial."""
    return [
        (probe, str(state).partition(":")[2].strip() or "no reason given")
        for probe, state in (row.get("probes") or {}).items()
        if str(state).startswith("unavailable")
    ]


def _keep(values: list[float], value: object) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        values.append(float(value))


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
