"""`errors.jsonl`: each error of a trial, written the moment it is recorded, for a process that never gives its account.

The subject appends (`harness.subject.errorlog`). Once there is a `result.json`, which has them all, the file goes. Else the
row of the trial is made of it and of the events (`harness.control.last_words`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.core.jsontext import parse_json
from harness.core.outcome import LABELS
from harness.core.rowshape import fault, is_number

NAME = "errors.jsonl"
TORCH, CLOCK = "torch", "clock_start_ns"
"""What a line has besides the error: torch's version, and when the subject started (`time.perf_counter_ns`)."""


def read_errors(folder: Path) -> list[dict[str, Any]]:
    """The lines of a trial's file, by time; [] without one. A line that was cut (a death, a full disk) is left out."""
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return []
    found = [error for line in data.splitlines() if (error := _decode(line)) is not None]
    return sorted(found, key=lambda error: float(error["at_s"]))


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        error = parse_json(line)
    except ValueError:  # also a character cut in two
        return None
    sound = isinstance(error, dict) and error.get("label") in LABELS and is_number(error.get("at_s"))
    return error if sound and not fault({"errors": [error]}) else None
