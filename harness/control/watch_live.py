"""The live display of a watch: the lowest lines of the terminal, below what the program prints.

The lines are taken out of the terminal's scrolling region, as package managers do for their progress bar, so the program
writes above them as ever and needs not be asked. They are drawn when the watch looks, which is twice a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from .watch_rows import Process

STATE = "state.json"
MOST_LINES = 9
WIDEST = 160
COLUMNS = (("thread", 26), ("region", 12), ("steps", 8), ("compiles", 8), ("dense", 7))


class NoDisplay:
    """Shows nothing."""

    def show(self, watched: Sequence[Process]) -> None:
        """Nothing."""

    def pause(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class LiveDisplay:
    """`stream` is a terminal; `size` gives its (columns, lines)."""

    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]]) -> None:
        self._stream = stream
        self._size = size
        self._rows = 0  # of the terminal, as the region was set for; 0: it is not set
        self._height = 0

    def show(self, watched: Sequence[Process]) -> None:
        """Draw the newest state of every process that has one."""
        states = [(process, state) for process in watched if (state := _state(process.folder)) is not None]
        columns, rows = self._size()
        lines = render(states, min(columns, WIDEST) - 1, min(MOST_LINES, rows // 3))
        if not lines or rows < 8:
            return
        if rows != self._rows or len(lines) > self._height:
            self._reserve(rows, max(len(lines), self._height))
        lines += [""] * (self._height - len(lines))
        top = rows - self._height + 1
        drawn = "".join(f"\x1b[{top + number};1H\x1b[2K{line}" for number, line in enumerate(lines))
        self._write(f"\x1b7{drawn}\x1b8")

    def pause(self) -> None:
        """Before something else is printed: give all lines back."""
        if self._rows:
            top = self._rows - self._height + 1
            self._write(f"\x1b7\x1b[r\x1b[{top};1H\x1b[J\x1b8")
            self._rows = self._height = 0

    def close(self) -> None:
        """For good."""
        self.pause()

    def _reserve(self, rows: int, height: int) -> None:
        self.pause()
        # First make room below the cursor, so that what stands there is not written over; setting the region moves the cursor.
        self._write("\n" * height + f"\x1b[{height}A\x1b7\x1b[1;{rows - height}r\x1b8")
        self._rows, self._height = rows, height

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal has gone; the program may not have
            self._stream.write(text)
            self._stream.flush()


def render(states: Sequence[tuple[Process, Mapping[str, Any]]], width: int, most: int) -> list[str]:
    """The lines: a head, then a thread a line, those that wait first; at most `most`."""
    if not states or most < 2:
        return []
    threads = [
        (process, thread) for process, state in states for thread in state.get("threads", ())
    ]
    several = len(states) > 1
    threads.sort(key=lambda pair: (not pair[1]["waits"], not pair[1]["doing"]))
    errors = sum(int(state.get("fx_errors", 0)) for _, state in states)
    stuck = [reason for _, state in states for reason in state.get("stuck", ())]
    at = max(float(state.get("at_s", 0.0)) for _, state in states)
    head = f"harness watch {at:.0f} s, FX errors {errors}"
    lines = [f"{head}, STUCK: {stuck[0]}" if stuck else head]
    lines.append(" ".join(name.ljust(wide) for name, wide in COLUMNS) + " waiting for, doing")
    for process, thread in threads[: most - 2]:
        name = f"{process.rank or process.pid}: {thread['name']}" if several else thread["name"]
        cells = (name, thread["region"], f"{thread['steps']:,}", f"{thread['compiles']:,}", f"{thread['dense']:,}")
        shown = " ".join(str(cell)[:wide].ljust(wide) for cell, (_, wide) in zip(cells, COLUMNS, strict=True))
        lines.append(f"{shown} {thread['waits'] or thread['doing']}")
    if len(threads) > most - 2:
        lines[0] += f", {len(threads) - most + 2} more threads"
    return ["".join(sign if sign.isprintable() else "?" for sign in line)[:width] for line in lines]


def make_display(wanted: bool) -> LiveDisplay | NoDisplay:
    """A display on standard error where it is wanted; the caller has seen to it that that is a terminal."""
    return LiveDisplay(sys.stderr, _terminal) if wanted else NoDisplay()


def _terminal() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stderr.fileno())
    except OSError:  # it was closed meanwhile
        return 0, 0
    return size.columns, size.lines


def _state(folder: Path) -> Mapping[str, Any] | None:
    try:
        found = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None
