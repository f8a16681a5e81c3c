"""What to do after a run, and what it costs: the end of what a person sees."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.analysis.errors import ErrorGroup
from harness.analysis.intervals import trials_for_safe
from harness.analysis.selection import as_where
from harness.analysis.summary import ScenarioSummary
from harness.core.axes import BY_NAME
from harness.core.errors import UserError
from harness.core.outcome import INCOMPLETE
from harness.core.versions import parse_version
from harness.report import wording
from harness.report.view import RunView

INDENT = 2
MOST_EVIDENCE = 2  # of errors, and of deadlocks, hangs and crashes: a command for each kind
BY_SETTING = {"dense-by-thread-config": ("dynamo", "dense")}
"""Hazards that a setting brings about under any lock: the axis that sets it, and what is seen."""


class Whole(Text):
    """A line that must stay one, however long."""


def following(view: RunView) -> list[RenderableType]:
    """The lines below `Next`."""
    lines: list[RenderableType] = []
    undecided = [item for item in view.summary.scenarios if item.verdict == "undecided" and not item.by_torch]
    if view.interrupted:
        lines += _advice("interrupted; continue with", view.resume)
    elif undecided:
        need = trials_for_safe()
        scenarios = wording.plural(len(undecided), "scenario")
        lines += _advice(
            f"{scenarios} undecided; safe takes {need} trials each without a failure: {_cost(view, need)}",
            f"{view.resume} --repeats {need}",
        )
        lines += _fewer(view, undecided)
    evidence: dict[str, str] = {}
    for error in _failures(view):
        evidence.setdefault(error.witness_trial, error.label)
    for group in view.summary.stuck[:MOST_EVIDENCE]:
        evidence.setdefault(group.trial, f"a {group.label}")
    for trial, what in evidence.items():
        folder = f"{view.run_dir}/trials/{trial}/"
        lines += _advice(f"evidence of {what}, and its hazard and remedy where these are known:", folder)
        lines += _whole(f"harness explain {shlex.quote(folder)}")
    pipelines = any(item.scenario["workload"] == "dflash" for item in view.summary.scenarios)
    if pipelines and not _can_be_refused(view.torch):
        said = f'"Detected that you are using FX …" cannot happen on torch {view.torch}; if that is what you came for, add'
        lines += _advice(said, "--python PY   (an interpreter with the torch that shows it)")
    if view.report:
        lines += _advice("the report, for a browser:", view.report)
    lines += _advice("all rows:", f"{view.run_dir}/results.jsonl")
    return lines


def _failures(view: RunView) -> list[ErrorGroup]:
    """A few to look at: first those that a setting does not bring about under any lock, and of each label one."""
    by_setting = {scenario for scenarios in failing_settings(view).values() for scenario in scenarios}
    groups = [group for group in view.summary.errors if not group.only_consequences and group.label not in INCOMPLETE]
    kinds: dict[str, ErrorGroup] = {}
    for group in sorted(groups, key=lambda group: set(group.scenarios) <= by_setting):
        kinds.setdefault(group.label, group)
    return list(kinds.values())[:MOST_EVIDENCE]


def _can_be_refused(torch: str) -> bool:
    """Whether any hazard of the catalogue whose effect is an FX error can come about with this torch; of one whose version
    cannot be read that is not known."""
    from harness.hazards import HAZARDS

    try:
        parse_version(torch)
    except UserError:
        return True
    effects = ((hazard, case.effect) for hazard in HAZARDS for case in (hazard.program, hazard.pipeline) if case is not None)
    return any("fx_error" in effect.labels and hazard.applies(torch, cuda=99) for hazard, effect in effects)


def _cost(view: RunView, repeats: int) -> str:
    """`about 930 more trials, about 2 h 10 min with -j 1`: of all that the command would run, failed or not."""
    ran = [item for item in view.summary.scenarios if not item.skipped]
    trials = sum(item.trials for item in ran)
    mean = sum(item.wall_s for item in ran) / trials if trials else 0.0
    missing = {item.id: max(0, repeats - item.trials) for item in ran}
    seconds = sum(missing[item.id] * (item.wall_s / item.trials if item.wall_s else mean) for item in ran)
    said = f"about {wording.plural(sum(missing.values()), 'more trial')}"
    said += f", about {wording.duration(seconds / view.jobs)} with -j {view.jobs}" if seconds else ""
    unsafe = sum(item.verdict == "unsafe" and missing[item.id] > 0 for item in ran)
    return said + (f", those of {wording.plural(unsafe, 'unsafe scenario')} included" if unsafe else "")


def _fewer(view: RunView, undecided: Sequence[ScenarioSummary]) -> list[RenderableType]:
    """How to ask less than all that."""
    if len(view.summary.scenarios) < 2:
        return []
    locks = list(dict.fromkeys(str(item.scenario["lock"]) for item in undecided))
    lock = next((name for name in reversed(locks) if name != "none"), locks[-1])
    lines: list[RenderableType] = []
    if len({item.scenario["lock"] for item in view.summary.scenarios}) > 1:
        lines.append(indented(Text(f"of some scenarios only: with --only {shlex.quote(f'lock={lock}')} added")))
        if view.bisect:
            # Of the matrix what was run; and where a setting fails under any lock, no lock is safe in all scenarios: those are
            # left out of the question.
            ran = {axis: {str(item.scenario[axis]) for item in view.summary.scenarios} for axis in view.varying}
            asked_of = {axis: next(iter(values)) for axis, values in ran.items() if axis != "lock" and len(values) == 1}
            failing = (setting.partition("=")[0] for setting, _ in failing_settings(view))
            asked_of.update({axis: str(BY_NAME[axis].default) for axis in failing})
            asked = f"{view.bisect} --only {shlex.quote(as_where(asked_of))}" if asked_of else view.bisect
            lines += _advice("if the question is which lock is enough:", asked)
    return lines


def failing_settings(view: RunView) -> dict[tuple[str, str], list[str]]:
    """(`dynamo=limit_in_main`, hazard) → scenarios that fail by it, which no lock mends and which says nothing of theirs."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in view.summary.scenarios:
        said = " ".join(judgement.text for judgement in view.judgements.get(item.id, ()))
        for hazard, (axis, label) in BY_SETTING.items():
            value = item.scenario[axis]
            if value != BY_NAME[axis].default and item.outcomes.get(label) and hazard in said:
                found.setdefault((f"{axis}={value}", hazard), []).append(item.id)
    return found


def _advice(why: str, what: str) -> list[RenderableType]:
    return [indented(Text(why)), *_whole(what)]


def _whole(what: str) -> list[RenderableType]:
    return [Whole(" " * 2 * INDENT + what)]


def indented(text: Text, by: int = INDENT) -> RenderableType:
    """By so many columns."""
    return Padding(text, (0, 0, 0, by), expand=False)
