"""A scenario that failed as a test: what was seen, who collided with whom, and how to see it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.analysis.errors import ErrorGroup
from harness.analysis.paths import shorten
from harness.analysis.summary import RunSummary, ScenarioSummary
from harness.core.matrix import Judgement
from harness.core.outcome import INCOMPLETE, OK, SKIPPED
from harness.report import wording

Row = Mapping[str, Any]

FRAMES = 6
"""Innermost frames that are shown of a stack."""
MOST_GROUPS = 3
MOST_MESSAGE = 500


def headline(summary: ScenarioSummary, judgements: Sequence[Judgement]) -> str:
    """One line: the judgements that are not met, or why there is none."""
    broken = [f"{judgement.kind}: {judgement.text}" for judgement in judgements if judgement.kind != "met"]
    if broken:
        return "; ".join(broken)
    return f"incomplete: {counts(summary)}" + (f": {_one_line(summary.reason)}" if summary.reason else "")


def failure_text(
    summary: ScenarioSummary,
    errors: Sequence[ErrorGroup],
    judgements: Sequence[Judgement],
    rows: Sequence[Row],
    *,
    name: str,
    run_dir: str,
    again: str,
    whole: bool = False,
) -> str:
    """The text of a failed scenario.

    `name` is the scenario as a person would say it, `again` the command that runs it again, `whole` shows stacks to
    their outer ends.
    """
    torch = next((str(row["torch"]) for row in rows if row.get("torch")), "")
    lines = [headline(summary, judgements), "", f"scenario  {name}"]
    lines.append(f"seen      {wording.verdict(summary)}: {counts(summary)}" + (f", torch {torch}" if torch else ""))
    blocks = [_error(group, whole) for group in errors if not group.only_consequences]
    told = {group.label for group in errors}
    blocks += [_finding(label, rows) for label in summary.outcomes if label not in (OK, SKIPPED, *told)]
    for block in blocks[:MOST_GROUPS]:
        lines += ["", *block]
    if len(blocks) > MOST_GROUPS:
        lines += ["", f"and {wording.plural(len(blocks) - MOST_GROUPS, 'more kind')} of failure"]
    witness = next((row for row in rows if row["outcome"] != OK), None)
    lines.append("")
    if witness is not None:
        files = ", ".join(witness.get("evidence") or ["empty"])
        lines.append(f"evidence  {run_dir}/trials/{witness['trial']}/ ({files})")
    lines.append(f"again     {again}")
    return "\n".join(lines)


def counts(summary: ScenarioSummary) -> str:
    """`2 fx_error, 1 ok in 3 trials`."""
    said = ", ".join(f"{count} {label}" for label, count in summary.outcomes.items())
    return f"{said} in {wording.plural(summary.trials, 'trial')}"


def tally(run: RunSummary) -> str:
    """`2 unsafe, 1 undecided, 1 skipped`."""
    found: dict[str, int] = {}
    for item in run.scenarios:
        verdict = SKIPPED if item.skipped else item.verdict
        found[verdict] = found.get(verdict, 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in found.items()) or "nothing ran"


def properties(summary: ScenarioSummary, run_dir: str) -> list[tuple[str, object]]:
    """What a JUnit file says of a scenario beside its outcome: the labels' counts as a JSON object, and numbers."""
    return [
        ("scenario", summary.id),
        ("verdict", summary.verdict),
        ("trials", summary.trials),
        ("failures", summary.failures),
        ("outcomes", json.dumps(summary.outcomes)),
        ("run_dir", run_dir),
    ]


def innermost(stack: str, frames: int = FRAMES) -> list[str]:
    """The last frames of a stack or traceback, without the exception's own text; how many were left out comes first."""
    lines = _readable(stack)
    starts = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    if not starts:
        return [line.strip() for line in lines[-frames:]]
    end = starts[-1] + 1
    while end < len(lines) and lines[end].startswith("    "):
        end += 1
    kept = lines[starts[-frames:][0] : end]
    left_out = len(starts) - frames
    note = [f"  ({wording.plural(left_out, 'outer frame')} left out; -vv shows all)"] if left_out > 0 else []
    return note + kept


def _readable(stack: str) -> list[str]:
    """Its lines, with short paths."""
    return shorten(stack.rstrip()).splitlines()


def _error(group: ErrorGroup, whole: bool) -> list[str]:
    witness = group.witness
    failed = str(witness.get("worker") or witness.get("thread") or "?")
    lines = [
        f"{group.label} in {wording.plural(group.trials, 'trial')}: {group.type}: {_one_line(group.message)}",
        f"  fingerprint {group.fingerprint}",
        f"  {wording.whereabouts(witness)}" + ("" if witness.get("stage") else f", step {witness.get('step', '?')}"),
    ]
    lines += [f"  while {wording.whereabouts(tracer, 'was tracing')}" for tracer in group.collision]
    stacks = [(f"innermost stack of {failed}, which failed", str(witness.get("traceback") or ""))]
    for tracer in group.collision:
        who = tracer.get("worker") or tracer.get("thread") or "?"
        stacks.append((f"innermost stack of {who}, which was tracing", str(tracer.get("stack") or "")))
    for title, stack in stacks:
        shown = _readable(stack) if whole else innermost(stack)
        lines += ["", f"  {title}:", *(f"  {line}" for line in shown or ["  not known"])]
    return lines


def _finding(label: str, rows: Sequence[Row]) -> list[str]:
    """A label that no exception explains: what the trial's row says of it."""
    found = [row for row in rows if label in row["outcomes"]]
    row = found[0]
    why = str(row.get("reason") or _why(label, row))
    lines = [f"{label} in {wording.plural(len(found), 'trial')}: {_one_line(why)}"]
    last: dict[str, Mapping[str, Any]] = {}
    for event in row.get("last_events") or ():
        last[str(event.get("w") or event.get("th") or "?")] = event
    if last and label not in INCOMPLETE:
        lines.append("  last event of each worker:")
        for who, event in last.items():
            what = " ".join(str(event[key]) for key in ("k", "r", "lock", "what") if key in event)
            lines.append(f"    {who}: {what} at {event.get('t', 0) / 1e9:.3f} s")
    return lines


def _why(label: str, row: Row) -> str:
    if label == "dense" and row.get("dense_calls"):
        return f"{wording.plural(int(row['dense_calls']), 'attention call')} ran dense"
    return "no reason given"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_MESSAGE else line[: MOST_MESSAGE - 1] + "…"
