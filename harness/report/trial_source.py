"""Everything that a trial's folder, and the run it belongs to, say of the trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.control.request import Row
from harness.control.results import ENVIRONMENT
from harness.control.rundir import TRIALS, holds_trials
from harness.core.errors import RunFolderError
from harness.report.inside import is_own
from harness.report.sound import Sounder, UnsoundError
from harness.report.source import open_source
from harness.report.trial_events import RESULT, SPEC, Event, check_trial_folder, read_document, read_trial_events

REPRODUCTION = "reproduce.json"
STACKS = "stacks.txt"
LONGEST_STACKS = 200_000


@dataclass(frozen=True)
class Trial:
    """`row` is sound. `others`: outcomes of the scenario's other trials in the run. `hazard`: whose plan it followed."""

    folder: Path
    row: Row
    environment: Mapping[str, Any]
    events: list[Event]
    stacks: str
    hazard: str = ""
    witness: list[Mapping[str, Any]] = field(default_factory=list)
    others: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_trial(path: Path) -> Trial:
    """Read a trial. Raises RunFolderError: it is none, or nothing in it says how it ended."""
    folder = check_trial_folder(path)
    result, spec = read_document(folder / RESULT), read_document(folder / SPEC)
    run = folder.resolve().parent.parent
    rows = _rows(run) if folder.resolve().parent.name == TRIALS else []
    name = folder.resolve().name
    row = next((one for one in reversed(rows) if one["trial"] == name), None)
    if row is None:
        row = _from_result(folder, result, spec)
    told = read_document(run / REPRODUCTION)
    environment = read_document(run / ENVIRONMENT) or told.get("environment") or {}
    schedule = result.get("schedule")
    witness = schedule.get("witness") if isinstance(schedule, dict) else None
    notes: list[str] = []
    try:
        events, notes = read_trial_events(folder)
    except RunFolderError as error:
        events, notes = [], [str(error)]
    return Trial(
        folder,
        row,
        environment if isinstance(environment, dict) else {},
        events,
        _text(folder / STACKS),
        str(told.get("hazard") or ""),
        [one for one in witness if isinstance(one, dict)] if isinstance(witness, list) else [],
        [one["outcomes"] for one in rows if one["scenario_id"] == row["scenario_id"]],
        notes,
    )


def _rows(run: Path) -> list[Row]:
    return list(open_source(run).rows()) if holds_trials(run) else []


def _from_result(folder: Path, result: Mapping[str, Any], spec: Mapping[str, Any]) -> Row:
    if not result:
        raise RunFolderError(f"{folder} has no {RESULT}, and its run no row of it: how it ended is not known")
    raw = {
        **result,
        "trial": folder.resolve().name,
        "scenario": spec.get("scenario"),
        "scenario_id": spec.get("trial"),
        "schema": 1,
    }
    try:
        return Sounder().sound(raw)
    except UnsoundError as error:
        raise RunFolderError(f"{folder}: its {RESULT} {error}") from None


def _text(path: Path) -> str:
    if not is_own(path):  # a link to a file that is not of the run
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LONGEST_STACKS)
    except OSError:
        return ""
