"""What a bisection has answered, for the page of its folder: the headline, and what was run of each strategy.

Of `bisect.json`, which is read as anything else in a folder that was sent: what is not as it should be is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from harness.analysis.intervals import trials_for_safe
from harness.analysis.verdicts import NOTHING_TO_FIX
from harness.control.bisect_question import QUESTION
from harness.core.axes import Value
from harness.core.plan import ENDINGS, REPRODUCED
from harness.report.answer import Answer
from harness.report.bisect_witness import WitnessView, witness_view
from harness.report.scenarios import MARKS, ScenarioView
from harness.report.text import one_line
from harness.report.trial_events import read_document
from harness.report.wording import percent, plural

MOST_STRATEGIES = 200
MOST_PLANS = 100
LONGEST = 300
BY_PLAN = "unsafe by plan"
IN_PLAN = "unsafe in a plan's trial"
_VERDICTS = ("unsafe", "safe", "undecided", "incomplete")


@dataclass(frozen=True)
class StrategyRow:
    """One strategy. `failed`: `1/4` of its trials; `by_plan`: `1 of 2 plans reproduced`; `why`: witness or reason; `trial`:
    the folder of the witness, "" without one; `plans`: (hazard, ending, what that means); `hazard`: which was reproduced by
    its plan, `beside`: in whose plan's trial the strategy failed, though not as the plan has it."""

    lock: str
    verdict: str
    mark: str
    failed: str
    by_plan: str
    why: str
    trial: str
    plans: tuple[tuple[str, str, str], ...]
    hazard: str = ""
    schedule: str = ""
    beside: str = ""
    label: str = ""
    witness: WitnessView | None = None


@dataclass(frozen=True)
class Bisected:
    """The answer of a bisection. `needed`: how many trials without a failure it calls safe, 0 where that is not known;
    `families`: the amplifying schedules that it used beside the scenarios' own."""

    answer: Answer
    rows: tuple[StrategyRow, ...]
    open: tuple[str, ...]
    needed: int = 0
    families: frozenset[str] = frozenset()

    @property
    def witnessed(self) -> tuple[StrategyRow, ...]:
        """The strategies that something was seen of: what it was stands in their `witness`."""
        return tuple(row for row in self.rows if row.witness is not None)

    @property
    def has_plans(self) -> bool:
        """Whether any plan was carried out."""
        return any(row.plans for row in self.rows)

    @property
    def meaning_of_safe(self) -> str:
        """As the legend says it; "" where the bisection does not."""
        return f"called so by the bisection: {self.needed:,} fresh trials or more, none failed" if self.needed else ""

    def place(self, scenario: Mapping[str, Value]) -> Mapping[str, Value]:
        """Where a scenario stands in the grid: with the others of its family of schedules, each of which has its own seed."""
        family = self._family(scenario)
        return {**scenario, "schedule": family} if family else scenario

    def _family(self, scenario: Mapping[str, Value]) -> str:
        schedule = str(scenario.get("schedule"))
        return next((one for one in sorted(self.families) if _of_family(schedule, one)), "")

    def shown(self, view: ScenarioView, scenario: Mapping[str, Value]) -> ScenarioView:
        """A scenario of the grid as the bisection sees it, which asks by a rate of its own: unsafe where a plan has
        reproduced its hazard in it, safe only where it was certified. No failure is a surprise: it was after failures.
        """
        view = dataclasses.replace(view, judged=())
        if view.state not in ("notrun", "undecided", "safe", "incomplete"):
            return view
        for row in self.rows:
            if row.lock == scenario.get("lock") and view.state in ("undecided", "safe"):
                certified = row.verdict == "safe" and self._family(scenario) == row.schedule
                called = "safe" if certified else "undecided"
                if called == "undecided" and self.needed <= trials_for_safe():
                    called = view.state  # so many trials without a failure are safe by either rate
                view = dataclasses.replace(view, state=called, mark=MARKS[called], word=called)
            plan = row.hazard or row.beside
            if plan and row.trial.startswith(f"plans/{plan}--{view.id}--"):
                said = f"{plan} was reproduced by its plan" if row.hazard else f"it failed while the plan of {plan} was tried"
                return dataclasses.replace(
                    view,
                    state="unsafe",
                    mark=MARKS["unsafe"],
                    word=BY_PLAN if row.hazard else IN_PLAN,
                    labels=((row.hazard or row.label, 1), *view.labels),
                    reason=f"{said}: {row.trial}",
                )
        return view


def read_bisected(run_dir: Path, shown: str = "") -> Bisected | None:
    """The answer in a folder; None where it is not of a bisection of locks or regions, or that has none yet.
    `shown`: the folder as it is to be typed in commands, without one as given."""
    document = read_document(run_dir / QUESTION)
    found = document.get("answer")
    listed = (found.get("ladder") or found.get("tested")) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(listed, list) or found.get("verdict") not in _VERDICTS:
        return None
    folder = shown or str(run_dir)
    rows = tuple(row for row in (_row(entry, folder) for entry in listed[:MOST_STRATEGIES]) if row is not None)
    contexts = document.get("contexts")
    several = isinstance(contexts, list) and len(contexts) > 1
    lines = found.get("open")
    return Bisected(
        _answer(found, rows, several),
        rows,
        tuple(_said(line) for line in lines[:MOST_STRATEGIES]) if isinstance(lines, list) else (),
        _needed(found),
        frozenset(name for entry in listed if isinstance(entry, dict) for name in _families(entry.get("schedules"))),
    )


def _answer(found: Mapping[str, Any], rows: Sequence[StrategyRow], several: bool) -> Answer:
    verdict, conclusion = str(found["verdict"]), _said(found.get("conclusion"))
    counts = _counts(rows)
    sentence = f"{conclusion[:1].upper()}{conclusion[1:]}"
    if verdict in ("unsafe", "undecided") and counts:
        sentence, counts = f"{sentence}: {counts[:1].lower()}{counts[1:-1]}", ""
    if verdict == "safe":
        best = _said(found.get("answer"))
        sentence = f"Nothing to fix: {best} is safe" if conclusion == NOTHING_TO_FIX else conclusion
        each = " in each scenario" if several else ""
        if count := _needed(found):
            sentence += (
                f": 0 of {count:,} fresh trials failed{each} (so fewer than {percent(found['p_min'])} fail, "
                f"at {percent(found['confidence'])} confidence)"
            )
    rest = f"{counts} {plural(_whole(found.get('trials_total')), 'trial')} in all, those of plans included.".lstrip()
    if verdict == "safe" and found.get("cheapest") is False:
        rest += " A cheaper one may be safe."
    if found.get("stopped"):
        rest += f" Stopped: {_said(found['stopped'])}."
    return Answer(verdict, f"{sentence}.", rest)


def _needed(found: Mapping[str, Any]) -> int:
    """How many trials without a failure the answer calls safe; 0 where it does not say by what rate."""
    p_min, confidence = found.get("p_min"), found.get("confidence")
    return trials_for_safe(p_min, confidence) if _share(p_min) and _share(confidence) else 0


def _of_family(schedule: str, family: str) -> bool:
    """Whether `delays:7:dense` is of `delays:*:dense`, which is of itself."""
    head, _, tail = family.partition("*")
    return schedule.startswith(head) and schedule.endswith(tail)


def _families(schedules: object) -> list[str]:
    return [name for name in schedules if isinstance(name, str) and name] if isinstance(schedules, dict) else []


def _counts(rows: Sequence[StrategyRow]) -> str:
    """`Of 7 strategies 4 are unsafe (1 by trials, 2 by plan, 1 holding less than one that failed), 1 is safe, …`"""
    unsafe = [row for row in rows if row.verdict == "unsafe"]
    planned = [row for row in unsafe if row.hazard or row.beside]
    plan = sum(bool(row.hazard) for row in planned)
    trials = sum(row not in planned and row.failed[:1].isdigit() and not row.failed.startswith("0/") for row in unsafe)
    less = len(unsafe) - trials - len(planned)
    how = [
        (trials, "by trials"),
        (plan, "by plan"),
        (len(planned) - plan, "in a plan's trial"),
        (less, "holding less than one that failed"),
    ]
    parts = []
    for verdict in _VERDICTS:
        count = sum(row.verdict == verdict for row in rows)
        if count:
            more = ", ".join(f"{n} {words}" for n, words in how if n) if verdict == "unsafe" else ""
            parts.append(f"{count} {'is' if count == 1 else 'are'} {verdict}" + (f" ({more})" if more else ""))
    which = f"{len(rows)} strategies" if len(rows) != 1 else "1 strategy"
    return f"Of {which} {', '.join(parts)}." if parts else ""


def _row(entry: object, folder: str) -> StrategyRow | None:
    if not isinstance(entry, dict) or entry.get("verdict") not in _VERDICTS:
        return None
    verdict, trials, failures = str(entry["verdict"]), _whole(entry.get("trials")), _whole(entry.get("failures"))
    found, plans = entry.get("witness"), entry.get("plans")
    witness: Mapping[str, Any] = found if isinstance(found, dict) else {}
    endings = list(plans.items())[:MOST_PLANS] if isinstance(plans, dict) else []
    hazard = _said(witness.get("hazard"))
    reproduced = sum(ending == REPRODUCED for _, ending in endings)
    return StrategyRow(
        lock=_said(entry.get("lock")),
        verdict=verdict,
        mark=MARKS[verdict],
        failed=f"{failures:,}/{trials:,}" if trials else _in_plans(entry, witness),
        by_plan=f"{reproduced} of {plural(len(endings), 'plan')} reproduced" if endings else "",
        why=_why(entry, witness, hazard),
        trial=_said(witness.get("trial")),
        plans=tuple((_said(name), _said(ending), ENDINGS.get(str(ending), "")) for name, ending in endings),
        hazard=hazard,
        schedule=_said(entry.get("schedule")),
        beside=_said(witness.get("plan")),
        label=_said(witness.get("label")),
        witness=witness_view(witness, folder),
    )


def _in_plans(entry: Mapping[str, Any], witness: Mapping[str, Any]) -> str:
    """Of a strategy that has no trials but those of plans, in the words of the terminal."""
    if not _whole(entry.get("plan_trials")):
        return "not run"
    if witness:
        return "in a plan" if witness.get("plan") else "by plan"
    return "plans only"


def _why(entry: Mapping[str, Any], witness: Mapping[str, Any], hazard: str) -> str:
    if hazard:
        return f"{hazard}, by plan"
    if witness:
        worker, region = _said(witness.get("worker")), _said(witness.get("region"))
        known = f" ({_said(witness['known_as'])})" if witness.get("known_as") else ""
        said = _said(witness.get("label")) + known + (f": {worker}{f' in {region}' if region else ''}" if worker else "")
        return f"{said}, while the plan of {_said(witness['plan'])} was tried" if witness.get("plan") else said
    if entry.get("implied_by"):
        return f"holds less than {_said(entry['implied_by'])}"
    certified = _whole(entry.get("certified"))
    if entry["verdict"] == "safe" and certified:
        return f"{certified:,} fresh trials, none failed"
    return _said(entry.get("reason"))


def _said(value: object) -> str:
    return one_line(str(value), LONGEST) if value is not None else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0


def _share(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and 1e-6 < value < 1 - 1e-6
