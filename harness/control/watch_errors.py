"""Errors of a watched process by its events: where each was seen, and those that the last account came too early for.

The account is written about once a second, and when an error ends a thread; the events at once. So where a process went
without a last word, another error of its last second is in its events only: with its type and thread, without its message
and stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.core.errors import RunFolderError
from harness.core.eventfile import LINES_NAME
from harness.core.events import Event, read_events
from harness.core.outcome import LABELS

from .request import Row

ENDED = ("thread", "main")
"""Where an error was seen that ended its thread."""


def complete(row: Row, folder: Path, *, final: bool) -> list[str]:
    """Give the row's errors `seen` where an event says it; unless `final`, add those that only an event tells of.

    Returns the labels of what was added. Events that are damaged cost a problem of the row.
    """
    errors: list[dict[str, Any]] = [dict(error) for error in row["errors"]]
    added: list[dict[str, Any]] = []
    if final and not errors:
        return []
    told = {id(error): False for error in errors}
    try:
        for event in _of_errors(folder):
            known = _record_of(event, errors)
            if known is not None and not told[id(known)]:
                told[id(known)] = True
                known["seen"] = event["seen"]
            elif not final and not row.get("errors_dropped"):
                added.append(_error(event))
    except RunFolderError as error:
        row["problems"] = [*row.get("problems", []), {"label": "events", "text": str(error)}]
    row["errors"] = [*errors, *added]
    row["fx_errors"] = max(row["fx_errors"], sum(error["label"] == "fx_error" for error in row["errors"]))
    return [error["label"] for error in added]


def _of_errors(folder: Path) -> Iterator[Event]:
    path = folder / LINES_NAME
    for event in read_events(path) if path.exists() else ():
        if event.get("k") == "error" and event.get("label") in LABELS and "seen" in event:
            yield event


def _record_of(event: Event, errors: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The record that was made just before the event: its thread's latest until then, if it is of the same kind."""
    before = [
        error
        for error in errors
        if error["thread"] == event["th"] and isinstance(at := error.get("at_s"), int | float) and at <= event["t"] / 1e9
    ]
    latest = max(before, key=lambda error: float(error["at_s"]), default=None)
    return latest if latest is not None and latest["label"] == event["label"] else None


def _error(event: Event) -> dict[str, Any]:
    kind = str(event.get("error"))
    return {
        "label": event["label"],
        "type": kind,
        "message": "",
        "fingerprint": f"{kind}, of which only an event was written",
        "worker": event.get("w") or event["th"],
        "thread": event["th"],
        "region": "",
        "step": None,
        "traceback": "",
        "tracers": [],
        "consequence": False,
        "at_s": event["t"] / 1e9,
        "seen": event["seen"],
    }
