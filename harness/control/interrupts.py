"""Ctrl-C: once ends the running trials in good order, twice stops at once."""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from harness.control.rundir import as_typed

EXIT_INTERRUPTED = 3
SAME_S = 0.5
"""Seconds in which a further SIGTERM is the same one: `timeout` sends it to the process and then to its group."""

ENDING = "ending the running trials; Ctrl-C again stops at once"


def say_ending() -> None:
    """`ENDING` on standard error, from a signal handler, which may have met a write of Python's half done."""
    with suppress(OSError):  # nobody reads any more
        os.write(2, f"{ENDING}\n".encode())


def continues(command: str, folder: Path) -> str:
    """For `then`: the command that goes on in that folder, as a user at this prompt would type it."""
    return f"; {command} --resume --out {shlex.quote(as_typed(folder))} continues"


class Interrupts:
    """While entered, SIGINT and SIGTERM raise KeyboardInterrupt once; a second one ends the process on the
    spot.

    That leaves no subject behind: the start server kills its subjects when its socket closes, which the
    system does. `then` ends what is said of it. Inside `held()` the exception waits until the block ends: a row is
    written whole, and its writer knows that it was. To be entered on the main thread, the only one that Python lets
    handle signals.
    """

    def __init__(self, on_first: Callable[[], None], then: str = "") -> None:
        self._on_first = on_first
        self._then = then
        self._held = 0
        self._pending = False
        self._before: dict[signal.Signals, Any] = {}
        self._terminated = -math.inf  # when SIGTERM came last
        self.count = 0

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number == signal.SIGTERM and now - self._terminated < SAME_S:
            return
        if number == signal.SIGTERM:
            self._terminated = now
        self.count += 1
        if self.count > 1:
            # Nothing below may wait: whoever presses twice wants the prompt back. A live display hides the
            # cursor.
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")
            os.write(2, f"stopped at once{self._then}\n".encode())
            os._exit(EXIT_INTERRUPTED)
        self._on_first()
        if self._held:
            self._pending = True
            return
        raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let this block end before a first Ctrl-C is raised."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._pending and not self._held:
            self._pending = False
            raise KeyboardInterrupt
