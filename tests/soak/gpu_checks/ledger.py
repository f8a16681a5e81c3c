"""The ledger: a JSON line for each start and each end of a check, on disk before anything else happens."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .check import CUT, FINISHED, Figure

NAME = "ledger.jsonl"
STARTED = "started"
BROKEN_OFF = "broken off, with no word of how"


@dataclass(frozen=True)
class Standing:
    """What the ledger says of a check. `seconds`: of all parts of this attempt."""

    attempt: int
    status: str
    why: str = ""
    figure: Figure | None = None
    seconds: float = 0.0
    machine: str = ""

    @property
    def finished(self) -> bool:
        """It is not run again unless asked for."""
        return self.status in FINISHED


class Ledger:
    """`DIR/ledger.jsonl`. One process writes at a time."""

    def __init__(self, folder: Path, machine: str = "") -> None:
        self._path = folder / NAME
        self._machine = machine
        self._standings: dict[str, Standing] = {}
        for line in _lines(self._path):
            self._take(line)

    def of(self, check: str) -> Standing | None:
        """None for one that was never started."""
        return self._standings.get(check)

    def start(self, check: str, attempt: int) -> None:
        """To be called before its process is."""
        self._write({"check": check, "attempt": attempt, "status": STARTED})

    def end(self, check: str, status: str, why: str, figure: Figure | None, seconds: float) -> None:
        """Of the attempt that was started last."""
        attempt = self._standings[check].attempt
        said = None if figure is None else dataclasses.asdict(figure)
        self._write(
            {
                "check": check, "attempt": attempt, "status": status, "why": why, "figure": said,
                "seconds": round(seconds, 1), "machine": self._machine,
            }
        )  # fmt: skip

    def _write(self, line: dict[str, Any]) -> None:
        line = {"at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), **line}
        with open(self._path, "ab") as file:
            if file.tell() and not _ends_well(self._path):
                file.write(b"\n")  # behind a line that was cut
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(line)

    def _take(self, line: Mapping[str, Any]) -> None:
        name, attempt = str(line["check"]), int(line["attempt"])
        before = self._standings.get(name)
        spent = before.seconds if before is not None and before.attempt == attempt else 0.0
        if line["status"] == STARTED:
            figure = before.figure if before is not None and before.attempt == attempt else None
            self._standings[name] = Standing(attempt, CUT, BROKEN_OFF, figure, spent)
            return
        said = line["figure"]
        self._standings[name] = Standing(
            attempt,
            str(line["status"]),
            str(line["why"]),
            None if said is None else Figure(said["text"], said["values"], said["reached"]),
            spent + float(line["seconds"]),
            str(line["machine"]),
        )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Those that are whole; one that a kill has cut says nothing."""
    if not path.exists():
        return
    for text in path.read_text("utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line


def _ends_well(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
