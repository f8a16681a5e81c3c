"""What a trial or a watched program has written of itself by now: who waits for which lock, and who holds it.

Its events lie in a file that it has mapped, so its folder is found from outside, and nothing is asked of the process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.control.processes import mapped
from harness.core.eventfile import RAW_NAME, read_raw
from harness.core.events import Event

_LOCKS = {"compile_lock": "torch's compile lock", "strategy_lock": "the {lock} lock"}


@dataclass(frozen=True)
class Record:
    """`threads`: ident → name, with its worker. `edges`: (waiter's ident, what, holder's ident). `told`: hang.json."""

    folder: Path
    threads: Mapping[int, str]
    edges: tuple[tuple[int, str, int], ...]
    told: str = ""


def read_record(pid: int) -> Record | None:
    """None for a process that is neither a trial nor watched."""
    raw = mapped(pid, RAW_NAME)
    if raw is None:
        return None
    events, _ = read_raw(raw)
    names = {int(e["id"]): _label(e) for e in events if "id" in e and "th" in e}
    return Record(raw.parent, names, tuple(edges_of_events(events)), _told(raw.parent))


def _label(event: Event) -> str:
    name, worker = str(event["th"]), str(event.get("w", ""))
    return name if worker in ("", name) else f"{name} ({worker})"


def _told(folder: Path) -> str:
    try:
        found: dict[str, Any] = json.loads((folder / "hang.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return f"{found.get('label')}: {found.get('reason')}"


def edges_of_events(events: Iterable[Event]) -> list[tuple[int, str, int]]:
    """Waits that have begun and not ended, with the holders by the same account; events are in order of time."""
    holders: dict[str, dict[int, None]] = {}
    waiting: dict[int, str] = {}
    for event in events:
        kind, ident = str(event["k"]), int(event.get("id", 0))
        family, _, what = kind.rpartition(".")
        if family in _LOCKS:
            name = _LOCKS[family].format(lock=event.get("lock", ""))
            if what == "wait":
                waiting[ident] = name
                continue
            if what == "acquired":
                holders.setdefault(name, {})[ident] = None
            elif what == "released":
                holders.get(name, {}).pop(ident, None)
        waiting.pop(ident, None)  # whoever does anything has stopped to wait
    return [
        (ident, name, holder)
        for ident, name in waiting.items()
        for holder in holders.get(name, ())
    ]
