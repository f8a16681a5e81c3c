"""The events of one trial folder, whatever state it is in: everything that is whole, and a sentence about the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.control.find_trial import HINT, find_trial, names_nearby
from harness.control.rundir import TRIALS, holds_trials
from harness.core.errors import RunFolderError, nearest
from harness.core.eventfile import LINES_NAME, RAW_NAME, read_raw
from harness.report.inside import is_own
from harness.report.json_text import json_line

Event = dict[str, Any]
SPEC, RESULT = "spec.json", "result.json"


def check_trial_folder(path: Path) -> Path:
    """The folder itself, of an id the one in the newest run.

    Raises RunFolderError: there is none, or it is something else; the line says what to give.
    """
    path = find_trial(path)
    if not path.exists():
        raise RunFolderError(f"{path}: no such trial folder{nearest(path.name, names_nearby(path))}; {HINT}")
    if not path.is_dir():
        raise RunFolderError(f"{path} is a file; give the trial's folder, {path.parent}")
    if any((path / name).exists() for name in (LINES_NAME, RAW_NAME, SPEC, RESULT)):
        return path
    if holds_trials(path):
        trials = sorted(other.name for other in (path / TRIALS).iterdir()) if (path / TRIALS).is_dir() else []
        example = f", for example {path / TRIALS / trials[0]}" if trials else ", but it has none"
        raise RunFolderError(f"{path} is a run folder; give the folder of one of its trials{example}")
    raise RunFolderError(f"{path} is not a trial folder: it has neither {LINES_NAME} nor {SPEC}")


def read_trial_events(folder: Path) -> tuple[list[Event], list[str]]:
    """The events in order of time, and what was left out. Of a subject that was killed the raw file is read.

    Raises RunFolderError: there is no event log, it cannot be read, or it is a link out of the run folder.
    """
    lines, raw = folder / LINES_NAME, folder / RAW_NAME
    outside = [path.name for path in (raw, lines, folder / RESULT, folder / SPEC) if path.exists() and not is_own(path)]
    for name in outside:
        if name in (LINES_NAME, RAW_NAME):
            raise RunFolderError(f"{folder / name} is a link that leads out of the run folder; put the file itself there")
    try:
        if raw.exists():
            events, cut = _raw(raw)
        elif lines.exists():
            events, cut = _lines(lines)
        else:
            raise RunFolderError(f"{folder} has no {LINES_NAME}: the trial left no events, or its folder is not whole")
    except OSError as error:
        raise RunFolderError(f"cannot read the events of {folder}: {error.strerror}") from error
    sound = [event for event in events if _is_event(event)]
    cut += len(events) - len(sound)
    lost = sum(_drop_infinite(event) for event in sound)
    sound.sort(key=lambda event: event["t"])
    notes = [f"{cut:,} line{'' if cut == 1 else 's'} of the event log could not be read; left out"] if cut else []
    if lost:
        notes.append(f"{lost:,} value{'' if lost == 1 else 's'} of events that are no finite number; left out")
    notes += [f"{name} is a link that leads out of the run folder; left out" for name in outside]
    return sound, notes


def read_document(path: Path) -> dict[str, Any]:
    """A JSON object of a trial folder; {} where there is none, it cannot be read, or lies outside of the run."""
    if not is_own(path):
        return {}
    try:
        found = json_line(path.read_bytes())
    except OSError:
        return {}
    return found if isinstance(found, dict) else {}


def _raw(path: Path) -> tuple[list[Event], int]:
    try:
        return read_raw(path)
    except (KeyError, TypeError):  # a whole line that is no event
        raise RunFolderError(f"{path} is damaged: it holds lines that are no events") from None


def _lines(path: Path) -> tuple[list[Event], int]:
    events: list[Event] = []
    cut = 0
    with open(path, "rb") as file:
        for line in file:
            value = json_line(line)
            if isinstance(value, dict):
                events.append(value)
            elif line.strip():
                cut += 1
    return events, cut


def _drop_infinite(event: Event) -> int:
    """Takes out the values that are, or hold, NaN or infinity, which JSON has no word for; how many there were."""
    lost = [key for key, value in event.items() if not _is_finite(value)]
    for key in lost:
        del event[key]
    return len(lost)


def _is_finite(value: object) -> bool:
    if isinstance(value, dict | list):
        return all(map(_is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _is_event(event: Mapping[str, Any]) -> bool:
    at = event.get("t")
    return isinstance(at, int) and not isinstance(at, bool) and 0 <= at < 2**53 and isinstance(event.get("k"), str)
