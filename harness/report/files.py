"""Writing what a command was asked for: as a whole or not at all, and with one line when it cannot be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from harness.control import plan_oracle, references
from harness.control.plan_answers import PLANS
from harness.control.results import BISECTION, ENVIRONMENT, MATRIX, RESULTS
from harness.control.rundir import CUT, LOCK, TRIALS
from harness.core.errors import RunFolderError

_SIGNS = (MATRIX, ENVIRONMENT, RESULTS, BISECTION, "reproduce.json")
"""Files of which one is in every folder that holds a run, a bisection, or a plan's trials."""
_RECORDS = (*_SIGNS, PLANS, CUT, LOCK)
_FOLDERS = (TRIALS, references.FOLDER, plan_oracle.FOLDER)
_MADE = ("report.html", "trace.json")
"""What commands make in a trial's folder, and can make again."""
_KEPT = 40
"""Characters of a file's name in that of its unfinished part: the longest name leaves no room for more."""


def write_whole(content: str | bytes, path: Path, option: str = "--out", example: str = "") -> Path:
    """Write a file and say where it is.

    A link stays one: what it leads to is written. What is there and no regular file (a device, a FIFO) is written to as it
    stands; a regular file is replaced once the new one is whole.

    Raises RunFolderError: it cannot be written, or is what a run recorded, which no report can bring back; `option` names the
    way out, `example` a name within a folder.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        place = _place(path)
        if place is not None and (run := _recorded_by(place)) is not None:
            raise RunFolderError(f"{path} is of the record of the run in {run}; choose another file with {option}")
        if place is None:
            with open(path, "wb") as stream:  # by the name that was given: /dev/stdout resolves to no path
                stream.write(data)
        else:
            _replace(place, data)
    except IsADirectoryError as error:
        such = f", for example {path / example}" if example else ""
        raise RunFolderError(f"{path} is a folder; name a file with {option}{such}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise RunFolderError(f"cannot write {path}: {why}; choose another file with {option}") from error
    return path


def _place(path: Path) -> Path | None:
    """The regular file to replace or to make, behind all links; None for what is no regular file, or has no name."""
    real = Path(os.path.realpath(path))
    try:
        found = path.stat()
    except FileNotFoundError:
        return real
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError
    # A file that is open and was deleted has a name in /proc that leads to it, and none of its own.
    return real if stat.S_ISREG(found.st_mode) and real.exists() and real.samefile(path) else None


def _recorded_by(place: Path) -> Path | None:
    """The run folder whose evidence this file is, or would pass for; None of any other file."""
    folders = [above.parent for above in place.parents if above.name in _FOLDERS and place.name not in _MADE]
    folders += [place.parent] if place.name in _RECORDS else []
    return next((folder for folder in folders if any((folder / sign).exists() for sign in _SIGNS)), None)


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name[:_KEPT]}.{os.getpid()}")
    try:
        fresh.write_bytes(data)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
