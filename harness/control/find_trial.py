"""Which folder a trial on the command line means."""

from __future__ import annotations

import os
from pathlib import Path

LATEST_TRIALS = Path("reports") / "latest" / "trials"

HINT = "give reports/RUN/trials/ID, or the ID of a trial of reports/latest"


def find_trial(path: Path) -> Path:
    """The path itself where it exists; for a bare id the trial of the newest run, if that has one of this name."""
    if os.path.exists(path) or path.name in ("", "..") or path.parent != Path("."):
        return path
    newest = LATEST_TRIALS / path.name
    return newest if os.path.isdir(newest) else path  # of os.path: false, too, of a name that no file can have


def only_trial(run: Path) -> Path | None:
    """The one trial of a run's folder; None where it has more, or none, or is no run."""
    if not (run / "results.jsonl").exists() or not (run / "trials").is_dir():
        return None
    folders = [path for path in (run / "trials").iterdir() if path.is_dir()]
    return folders[0] if len(folders) == 1 else None


def names_nearby(path: Path) -> list[str]:
    """What a mistyped path may have meant: its neighbours, and for a bare id the trials of the newest run."""
    folders = [path.parent, *([LATEST_TRIALS] if path.parent == Path(".") else [])]
    return [other.name for folder in folders if folder.is_dir() for other in folder.iterdir()]
