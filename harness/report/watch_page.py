"""The page of a watch: what was wrong, what was seen, process by process, and the evidence behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.control.watch_hazards import HAZARD
from harness.report import facts
from harness.report.answer import Answer
from harness.report.evidence import Budget, Shower
from harness.report.page import Evidence
from harness.report.rundata import RunData
from harness.report.text import one_line
from harness.report.watch_sound import WatchSounder
from harness.report.watched import Told, explain_commands, head, nothing_seen, told
from harness.report.wording import plural

KIND = "watch"
MOST_PROCESSES = 200
LONGEST = 2_000

HOW_TO_READ = (
    "A watch sees one run as it happens to go. What it found has happened; what it did not find may happen in the next.",
    "An error that the program handled counts here, too: a refused compiled call is recorded as it is refused.",
    "Counts are complete. Events are bounded: what is unusual is kept with its surroundings, warm steps are sampled.",
)


@dataclass(frozen=True)
class ProcessView:
    """One process. `mark`: its outcome labels."""

    name: str
    head: str
    outcomes: tuple[str, ...]
    wrong: tuple[Told, ...]
    seen: tuple[Told, ...]


@dataclass(frozen=True)
class WatchPage:
    """Everything there is to see."""

    title: str
    subtitle: tuple[str, ...]
    left_out: tuple[str, ...]
    answer: Answer
    processes: tuple[ProcessView, ...]
    more: int
    errors: Evidence
    dense: Evidence
    stuck: Evidence
    environment: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]
    how_to_read: tuple[str, ...]


def is_watch(data: RunData) -> bool:
    """Whether the run folder is of a watch."""
    return data.environment.get("kind") == KIND


def build_watch_page(data: RunData) -> WatchPage:
    """The page of a watch's run folder."""
    rows = list(data.source.rows(WatchSounder()))  # with their facts, which a run's page leaves out
    views = [_view(row) for row in rows[:MOST_PROCESSES]]
    budget = Budget()
    program = {row["scenario_id"]: str(row["scenario"]["workload"]).removeprefix("watch:") for row in rows}
    shower = Shower(
        program, lambda _: "", lambda trial: f"{data.run_dir}/trials/{trial}/", data.source.trial_file, budget
    )
    gathered = data.gathered
    notes = [note for note in data.source.notes if not note.startswith("matrix.toml")]
    if budget.refused:
        notes.append(f"Left out to keep this file small: {plural(budget.refused, 'stack')}.")
    options = data.environment.get("options")
    return WatchPage(
        title=one_line(str(options.get("matrix") if isinstance(options, dict) else "watch"), 100),
        subtitle=tuple(
            part
            for part in (
                f"torch {one_line(data.torch, 60)}" if data.torch not in ("", "unknown", "None") else "without torch",
                facts.where(data.environment),
                str(data.environment.get("created") or "")[:40].replace("T", " ").replace("Z", " UTC"),
            )
            if part
        ),
        left_out=tuple(notes),
        answer=_answer(rows, views),
        processes=tuple(views),
        more=max(0, len(rows) - len(views)),
        errors=Evidence(tuple(shower.errors(data.summary.errors)), 0),
        dense=Evidence(tuple(shower.dense(gathered.dense.values())), 0),
        stuck=Evidence(tuple(shower.stuck(gathered.stuck.values())), 0),
        environment=tuple(facts.environment_table(data.environment)),
        commands=(
            ("This watch was made by", facts.typed(data.environment)),
            *(("Look for its hazard", command) for command in explain_commands(rows, data.run_dir)),
            ("Make this page again", f"harness report {data.run_dir}"),
        ),
        how_to_read=HOW_TO_READ,
    )


def _view(row: Mapping[str, Any]) -> ProcessView:
    all_told = [Told(one.wrong, one.topic, one_line(one.text, LONGEST)) for one in told(row)]
    return ProcessView(
        name=str(row["trial"]),
        head=head([row]),
        outcomes=tuple(row["outcomes"]),
        wrong=tuple(one for one in all_told if one.wrong),
        seen=tuple(one for one in all_told if not one.wrong),
    )


def _answer(rows: list[dict[str, Any]], views: list[ProcessView]) -> Answer:
    wrong = [one for view in views for one in view.wrong]
    if not rows:
        return Answer("incomplete", "Nothing was watched.", "No Python process of the program took the watch.")
    if wrong:
        findings = [one for one in wrong if one.topic != HAZARD]
        hazard = next((f"{one.text[0].upper()}{one.text[1:].rstrip('.')}." for one in wrong[1:2] if one.topic == HAZARD), "")
        more = f"{plural(len(findings) - 1, 'further finding')} below." if len(findings) > 1 else ""
        return Answer("unsafe", f"{one_line(wrong[0].text, 300)}.", f"{hazard} {more}".strip())
    return Answer("undecided", f"{nothing_seen(rows)}.", head(rows))
