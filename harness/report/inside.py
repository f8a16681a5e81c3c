"""Whether a path stays in the run folder: a folder that was sent may hold links to files of whoever reads it."""

from __future__ import annotations

from pathlib import Path

from harness.control.rundir import TRIALS


def is_trial_name(trial: str) -> bool:
    """Whether it can be the name of a trial's folder, which a run wrote; else it leads elsewhere."""
    return bool(trial) and trial not in (".", "..") and "/" not in trial and "\0" not in trial


def is_inside(path: Path, folder: Path) -> bool:
    """Whether the path, all links followed, lies in the folder. A link that leads in a circle does not."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a circle, before Python 3.13
        return False


def is_own(path: Path) -> bool:
    """Whether a file of a trial's folder lies, all links followed, in that folder or in the run that it belongs to."""
    folder = path.parent.resolve()
    return is_inside(path, folder.parent.parent if folder.parent.name == TRIALS else folder)
