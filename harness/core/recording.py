"""Recordings: the order in which the threads of one trial passed the sync points, so that it can be had again.

One JSON value a line: a head (what ran, and under which versions), an event a line as `[seat, point, info]`, and an end
that says how many events there are, so that a file that was cut off is not taken for a short one. A *seat* is a worker's
own thread, by the worker's name, or an engine thread that works for it (`drafter-0@engine`): names that every run has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness import __version__
from harness.core.errors import UserError, show

NAME = "recording.jsonl"
SCHEMA = 1
START = "thread.start"
"""The one event that is no sync point: a worker's thread begins."""


class RecordingError(UserError):
    """A recording is missing, cut off, damaged, or of another torch or harness."""


class Passed(NamedTuple):
    """A seat passed a point."""

    seat: str
    point: str
    info: str = ""

    def __str__(self) -> str:
        return f"{self.seat} [{self.point}{f' {self.info}' if self.info else ''}]"


@dataclass(frozen=True)
class Recording:
    """`head`: harness, torch, python, scenario, pipeline, workers, schedule."""

    events: tuple[Passed, ...]
    head: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """`recording.jsonl` in the folder, whole or not at all."""
        path = folder / NAME
        partial = folder / (NAME + ".part")
        lines = [{"schema": SCHEMA, "harness": __version__, **self.head}, *self.events, {"end": len(self.events)}]
        text = "".join(json.dumps(line, separators=(",", ":"), default=str) + "\n" for line in lines)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
        return path

    def to_json(self) -> dict[str, Any]:
        """For `spec["extra"]["recording"]`."""
        return {"events": [list(event) for event in self.events]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Recording:
        """Back from `to_json`. Raises RecordingError."""
        return cls(_events(document["events"], "recording"))


def read_recording(path: Path) -> Recording:
    """The recording of a trial's folder, or of a file. Raises RecordingError."""
    path = path / NAME if path.is_dir() else path
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise RecordingError(
            f"{path.parent}: it has no {NAME}; only trials with a schedule (delays, pct, directed) are recorded"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from error
    try:
        values = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        values = []
    end = values[-1].get("end") if values and isinstance(values[-1], dict) else None
    if end is None or end != len(values) - 2:
        raise RecordingError(f"{path}: the recording is cut off; its trial did not come to an end, so record it again")
    head = values[0]
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        found = head.get("schema") if isinstance(head, dict) else None
        raise RecordingError(f"{path}: not a recording that this version reads (schema {found!r}, here {SCHEMA})")
    for key in ("workers", "bindings"):
        names = head.get(key, {})
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise RecordingError(f"{path}: {key} = {show(names)} names no workers; was the file edited?")
    return Recording(_events(values[1:-1], str(path)), head)


def _events(values: Iterable[Any], where: str) -> tuple[Passed, ...]:
    found = []
    for number, value in enumerate(values, start=1):
        if not isinstance(value, list) or len(value) != 3 or not all(isinstance(part, str) for part in value):
            raise RecordingError(f"{where}: event {number} is none; was the file edited?")
        found.append(Passed(*value))
    return tuple(found)


def check_same(recording: Recording, torch: str, *, force: bool = False) -> str:
    """"" when it was recorded under this torch and harness. Else raises RecordingError, or with `force` says what differs."""
    head = recording.head
    differences = [
        f"{name} {head.get(name) or 'unknown'} recorded, {here} here"
        for name, here in (("torch", torch), ("harness", __version__))
        if head.get(name) != here
    ]
    text = "; ".join(differences)
    if differences and not force:
        raise RecordingError(f"the recording is of other versions ({text}): its order may not exist here; or use --force")
    return text
