"""The event log of a trial: one JSON object a line, written by the subject as things happen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import RunFolderError
from harness.core.jsontext import parse_json

Event = dict[str, Any]
"""``t`` nanoseconds since the subject's start, ``th`` thread name, ``id`` thread ident, ``w`` worker or "",
``k`` kind, and what the kind adds (``r`` region, ``lock``, ``step``, ``tokens``, ``loss``, ``not_finite``, ``answer``,
``what``, ``d`` device, ``a`` and ``r`` bytes)."""

KINDS: tuple[str, ...] = (
    "process.starting",
    "process.alive",
    "subject.start",
    "subject.ready",
    "subject.begin",
    "subject.end",
    "worker.start",
    "worker.end",
    "region.enter",
    "region.exit",
    "step.done",
    "step.failed",
    "fx.trace.enter",
    "fx.trace.exit",
    "flag.checked",
    "compile_lock.wait",
    "compile_lock.acquired",
    "compile_lock.released",
    "compile.start",
    "compile.end",
    "recompile",
    "backward_lowering.enter",
    "backward_lowering.exit",
    "dense.call",
    "engine.enter",
    "engine.exit",
    "strategy_lock.wait",
    "strategy_lock.acquired",
    "strategy_lock.released",
    "barrier.wait",
    "barrier.leave",
    "is_compiling.leak",
    "grad.missing",
    "wait.enter",
    "wait.exit",
    "memory",
    "error",
    "finding",
    "hang",
    "deadlock",
)
"""The kinds that this version writes. A reader leaves kinds it does not know alone."""


def event_line(event: Mapping[str, Any]) -> str:
    """The event as one line, line break included: a single write of it cannot be torn by another thread's.

    A value that JSON does not know (a device, a dtype) is written as its ``str``: an observer must not raise
    in the thread it observes.
    """
    return json.dumps(event, separators=(",", ":"), default=str) + "\n"


def read_events(path: str | Path) -> Iterator[Event]:
    """The events of a log, in the order in which they were written. Reads as it goes.

    A last line that was cut, because the subject was killed while writing it, is left out.

    Raises:
        RunFolderError: the log is missing, or a line other than the last is damaged.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below; opening apart keeps the error to opening
    except OSError as error:
        raise RunFolderError(f"{path}: cannot read the event log: {error.strerror}") from error
    with file:
        for number, line in enumerate(file, start=1):
            event = _decode(line)
            if event is not None:
                yield event
            elif line.endswith(b"\n"):
                raise RunFolderError(f"{path}: line {number} is not an event; was the file edited?")


def _decode(line: bytes) -> Event | None:
    try:
        event = parse_json(line)
    except ValueError:  # also a character cut in two
        return None
    return event if isinstance(event, dict) else None
