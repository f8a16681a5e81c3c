"""The page of one trial: what happened in it, with its whole timeline."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from harness.control.request import Row
from harness.core.errors import UserError, nearest
from harness.core.outcome import OK
from harness.report import facts
from harness.report.answer import FAILURE_WORDS
from harness.report.embed import Embedded, embed_trial
from harness.report.rundata import RunData
from harness.report.text import one_line
from harness.report.trialdata import mark_of


@dataclass(frozen=True)
class TrialPage:
    """`tone` is the colour of the answer, `trial` the trial's id; the rest of the page is in `embedded`."""

    trial: str
    title: str
    tone: str
    sentence: str
    rest: str
    subtitle: tuple[str, ...]
    left_out: tuple[str, ...]
    embedded: Embedded
    again: str


def build_trial_page(data: RunData, trial: str) -> TrialPage:
    """The page of a trial, by its id or the name of its folder. Raises UserError: the run has no such trial."""
    row = _find(data, trial)
    embedded = embed_trial(data, row)
    scenario = str(row["scenario_id"])
    return TrialPage(
        trial=row["trial"],
        title=one_line(row["trial"], 200),
        tone=mark_of(row) if row["outcome"] != OK else "good",
        sentence=_sentence(row),
        rest=one_line(str(row["reason"]), 600),
        subtitle=tuple(
            filter(
                None,
                (
                    one_line(data.names.get(scenario, scenario), 200),
                    f"torch {one_line(str(row['torch'] or data.torch), 60)}",
                    facts.where(data.environment),
                ),
            )
        ),
        left_out=tuple(one_line(note, 1_000) for note in data.source.notes),
        embedded=embedded,
        again=f"harness report {shlex.quote(data.run_dir)} --trial {shlex.quote(row['trial'])}",
    )


def _find(data: RunData, trial: str) -> Row:
    """The row, read again: only some are kept whole."""
    wanted = trial.rstrip("/").rpartition("/")[2]
    known = []
    for row in data.source.rows():
        if row["trial"] == wanted:
            return row
        known.append(row["trial"])
    raise UserError(
        f"{data.run_dir} has no trial {one_line(trial, 200)}{nearest(wanted, known)}; "
        "they are named in results.jsonl and are the folders below trials/"
    )


def _sentence(row: Row) -> str:
    labels = [FAILURE_WORDS.get(label, label) for label in row["outcomes"] if label != OK]
    if not labels:
        return "This trial ended well."
    return f"This trial failed: {', '.join(labels)}." if mark_of(row) == "unsafe" else f"No verdict: {labels[0]}."
