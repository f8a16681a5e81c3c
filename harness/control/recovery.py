"""Trials that have ended and have no row yet: their rows are kept in their folders until they are appended to the results.

Such a row waits for the reference that its trial is held against. As `row.json` it costs no memory meanwhile, and a run
that is killed finds it again, with what only the control side saw: how the process ended, its last events, the GPUs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.core.jsontext import parse_json
from harness.core.outcome import LABELS
from harness.core.rowshape import ALWAYS, fault

from .request import Row, TrialRequest
from .rows import Ending, trial_row
from .rundir import TRIALS, RunFolder

ASIDE = "row.json"


def set_aside(folder: RunFolder, row: Row) -> None:
    """Keep the row in its trial's folder. Raises RunFolderError when the disk refuses."""
    folder.trial_folder(row["trial"])  # refuses an id that would leave the folder
    folder.write(f"{TRIALS}/{row['trial']}/{ASIDE}", json.dumps(row) + "\n")


def take_back(folder: RunFolder, trial_id: str) -> Row:
    """The row that was set aside."""
    row: Row = json.loads((folder.trial_folder(trial_id) / ASIDE).read_text("utf-8"))
    return row


def drop(folder: RunFolder, trial_id: str) -> None:
    """The row is in the results: what was set aside goes."""
    (folder.trial_folder(trial_id) / ASIDE).unlink(missing_ok=True)


def recover(request: TrialRequest) -> Row | None:
    """The row of a trial that had ended when the run was killed, but whose row had not been written; None for any other.

    It was set aside, or is made from `result.json`. That is written last and as a whole, so the trial is finished; how
    its process ended is not known. What was damaged since counts for nothing: the trial runs again.
    """
    row = _read(request.folder / ASIDE)
    if row is not None and _is_of(row, request) and not fault(row, ALWAYS) and _labelled(row):
        return row
    ended, began = request.folder / "result.json", request.folder / "spec.json"
    result, spec = _read(ended), _read(began)
    if result is None or spec is None or not _is_of(spec, request):
        return None
    if fault(result, ("outcomes",)) or not _labelled(result):
        return None
    seconds = ended.stat().st_mtime - began.stat().st_mtime
    row = trial_row(request, Ending(0, "exited", max(0.0, seconds), None))
    row["exit"] = {"status": None, "signal": None, "how": "not seen: the run was killed"}
    return row


def _labelled(document: Row) -> bool:
    return bool(document["outcomes"]) and all(label in LABELS for label in document["outcomes"])


def _is_of(document: dict[str, Any], request: TrialRequest) -> bool:
    return document.get("trial") == request.trial_id and document.get("scenario") == request.scenario.to_dict()


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON file that may not be there, or not be whole."""
    try:
        value = parse_json(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
