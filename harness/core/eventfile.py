"""The raw form of a trial's events: one memory-mapped file of fixed chunks, each written by one thread.

The subject writes whole JSON lines into chunks (`harness.subject.eventlog`); whoever is left afterwards (the subject at
its end, or the control side when the subject was killed) turns the chunks into `events.jsonl`, sorted by time. The map
is shared with the page cache, so what a thread wrote before a crash is there after it, without a system call an event.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

CHUNK_BYTES = 16 * 1024
RAW_NAME = "events.bin"
LINES_NAME = "events.jsonl"


def read_raw(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All whole events of a raw file, sorted by time, and how many lines were cut (at most one a thread)."""
    events: list[dict[str, Any]] = []
    cut = 0
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            for line in chunk.rstrip(b"\0").split(b"\n"):
                if not line:
                    continue
                try:
                    events.append(json.loads(line))
                except (ValueError, RecursionError):
                    cut += 1
    events.sort(key=lambda event: event["t"])
    return events, cut


def merge(folder: Path) -> tuple[int, int]:
    """Turn `events.bin` of a trial folder into `events.jsonl` and remove it; (events, cut lines).

    Does nothing and returns (0, 0) where there is no raw file. The new file appears whole or not at all: OSError (a disk
    without room for it) leaves the raw file as it was.
    """
    raw = folder / RAW_NAME
    if not raw.exists():
        return 0, 0
    events, cut = read_raw(raw)
    partial = folder / (LINES_NAME + ".part")
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
        os.replace(partial, folder / LINES_NAME)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    raw.unlink()
    return len(events), cut
