"""`errors.jsonl`: an error is on the disk before its thread goes on, since the process may end before its account is written.

One `write` a line to a file that is opened anew each time: between two errors any descriptor may have become the program's,
and the kernel appends whole what several threads write at once, so no lock orders them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errorfile import CLOCK, NAME, TORCH


class ErrorLog:
    """Of one trial. Never raises: what is told matters more than that it could not be written."""

    def __init__(self, folder: Path, start_ns: int) -> None:
        self._path = os.path.abspath(folder / NAME)  # the program may go to another folder
        self._start_ns = start_ns
        self._torn = False  # a full disk took part of a line: the next begins on one of its own

    def append(self, error: Mapping[str, Any]) -> None:
        """Write it; where that cannot be done, its traceback goes into the trial's output."""
        try:
            self._write(error)
        except Exception as failure:  # noqa: BLE001  # of the disk, the descriptors, the memory: the error itself goes on
            with contextlib.suppress(Exception):  # a program may have closed its output as well
                told = f"harness: {NAME} could not be written: {failure}; the error was\n{error['traceback']}"
                print(told, file=sys.stderr, flush=True)

    def _write(self, error: Mapping[str, Any]) -> None:
        torch = sys.modules.get("torch")
        head = {TORCH: str(getattr(torch, "__version__", "")), CLOCK: self._start_ns}
        line = ("\n" * self._torn + json.dumps({**error, **head}, default=str) + "\n").encode()
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._torn = True
            wrote = os.write(fd, line)
            self._torn = wrote < len(line)
        finally:
            os.close(fd)
        if self._torn:
            raise OSError(f"{wrote} of {len(line)} bytes were taken")
