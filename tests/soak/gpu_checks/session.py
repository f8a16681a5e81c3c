"""Runs checks in the order of their list, as far as a budget of time goes, and keeps the ledger."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError

from .check import CUT, DONE, FAILED, Check, Figure, Place
from .devices import Devices
from .ledger import Ledger
from .process import Running

ROOT = Path(__file__).resolve().parents[3]
GRACE_S = 20.0
"""What a command has, from the SIGINT on, to end its trials and write its report; then it is killed."""
LOCK = ".lock"
"""In the session's folder: held while one runs."""

LOOK_S = 0.1
NO_TIME = "about {:.0f} s are needed, {:.0f} s are left"


@dataclass
class _Started:
    """`ending`: when it was interrupted, and why. `hung`: because it takes too long by itself."""

    check: Check
    running: Running
    folder: Path
    began: float
    jobs: int
    ending: tuple[float, str] | None = None
    killed: bool = False
    hung: bool = False


class Session:
    """`run` it once. `stop` may be called from a signal handler: all that runs is cut, nothing more is started.

    skipped  check → why it was not run; filled by `run`
    """

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        devices: Devices,
        *,
        minutes: float | None,
        jobs: int,
        again: bool = False,
        grace_s: float = GRACE_S,
        ended: Callable[[], object] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._ledger, self._folder, self._devices = ledger, folder, devices
        self._jobs, self._again, self._grace_s = jobs, again, grace_s
        self._ended, self._say = ended, say
        self._cut_at = float("inf") if minutes is None else time.monotonic() + 60 * minutes - kept_s(grace_s)
        self._stopped = False
        self._running: list[_Started] = []
        self.skipped: dict[str, str] = {}

    def stop(self) -> None:
        """Cut what runs."""
        self._stopped = True

    def run(self, checks: Sequence[Check]) -> None:
        """Of these, those that are not finished and can run here. Nothing is left running, whatever happens."""
        waiting = [check for check in checks if self._is_due(check)]
        try:
            while waiting or self._running:
                self._begin(waiting)
                self._look()
                if self._running:
                    time.sleep(LOOK_S)
        finally:
            for started in self._running:
                started.running.kill()

    def _is_due(self, check: Check) -> bool:
        standing = self._ledger.of(check.name)
        if standing is not None and standing.finished and not self._again:
            return False
        lacks = self._devices.lacks(check.devices)
        if lacks:
            self.skipped[check.name] = lacks
        return not lacks

    def _begin(self, waiting: list[Check]) -> None:
        """Start what there is time and room for, in the order of the list: nobody overtakes one that waits for room."""
        while waiting:
            check, left = waiting[0], self._left()
            if left < check.least_s or self._stopped:
                self.skipped[check.name] = "stopped" if self._stopped else NO_TIME.format(check.least_s, max(0, left))
                waiting.pop(0)
            elif self._has_room(check):
                self._start(waiting.pop(0))
            else:
                return

    def _left(self) -> float:
        return self._cut_at - time.monotonic()

    def _has_room(self, check: Check) -> bool:
        if not self._running:
            return True
        if check.jobs == 0 or any(started.check.jobs == 0 for started in self._running):
            return False
        return sum(started.jobs for started in self._running) + min(check.jobs, self._jobs) <= self._jobs

    def _start(self, check: Check) -> None:
        before = self._ledger.of(check.name)
        goes_on = before is not None and not before.finished and check.slice_s is not None
        attempt = 1 if before is None else before.attempt + (not goes_on)
        folder = folder_of(self._folder, check.name, attempt)
        if not goes_on:
            shutil.rmtree(folder, ignore_errors=True)  # of a ledger that was lost
        folder.mkdir(parents=True, exist_ok=True)
        jobs = min(check.jobs or 1, self._jobs)
        self._ledger.start(check.name, attempt)
        self._say(f"{check.name}: {'goes on' if goes_on else 'starts'}, about {check.cost_s:.0f} s")
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        variables = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", **check.variables}
        running = Running(check.command(Place(folder, jobs)), folder, cwd=ROOT, variables=variables)
        self._running.append(_Started(check, running, folder, time.monotonic(), jobs))

    def _look(self) -> None:
        for started in list(self._running):
            code = started.running.poll()
            if code is not None:
                self._running.remove(started)
                self._conclude(started, code)
                continue
            now = time.monotonic()
            if started.ending is not None:
                if now - started.ending[0] > self._grace_s and not started.killed:
                    started.running.kill()
                    started.killed = True
            elif self._stopped or self._left() <= 0:
                self._interrupt(started, "stopped" if self._stopped else "the time was up")
            elif now - started.began > started.check.limit_s:
                started.hung = True
                self._interrupt(started, f"no end after {started.check.limit_s:.0f} s")

    def _interrupt(self, started: _Started, why: str) -> None:
        started.ending = (time.monotonic(), why)
        started.running.interrupt()

    def _conclude(self, started: _Started, code: int) -> None:
        check, figure, why = started.check, None, ""
        try:
            figure = check.figure(started.folder)
        except (OSError, ValueError, LookupError, TypeError, UserError) as error:
            why = f"no figure: {type(error).__name__}: {error}"
        answered = code in check.codes and figure is not None
        if started.ending is not None and not answered:
            status, why = FAILED if started.hung else CUT, started.ending[1] + (", killed" if started.killed else "")
        elif answered:
            status = DONE
        else:
            status, why = FAILED, "; ".join(filter(None, [_ending(code) if code not in check.codes else "", why]))
        self._end(started, status, why, figure)

    def _end(self, started: _Started, status: str, why: str, figure: Figure | None) -> None:
        seconds = time.monotonic() - started.began
        self._ledger.end(started.check.name, status, why, figure, seconds)
        said = "" if figure is None else f": {figure.text}"
        self._say(f"{started.check.name}: {status}{f' ({why})' if why else ''} after {seconds:.0f} s{said}")
        self._ended()


def kept_s(grace_s: float) -> float:
    """Of the time that is given, what is kept for the end: commands that are interrupted, the table, the pack."""
    return 1.25 * grace_s


def folder_of(base: Path, check: str, attempt: int) -> Path:
    """Where that attempt of a check has, or had, its files."""
    return base / "checks" / check / str(attempt)


def tell(text: str) -> None:
    """A line of progress, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _ending(code: int) -> str:
    return f"exit {code}" if code >= 0 else f"ended by signal {-code}"
