"""Hangs of a watched program, seen from outside: what its watchdog reports, and the silence of the watchdog itself.

A watchdog that cannot run means that native code holds the interpreter lock: nothing inside can look then, so the stacks
are read from outside. Or the process is stopped as a whole, and that is no hang. On every hang the process's stacks, native
ones where permitted, are added to its evidence and held against the catalogue of hazards, before anything is killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError

from .evidence import PYSPY_SECONDS, STACKS, pyspy_dump
from .watch_hazards import words
from .watch_program import Program
from .watch_rows import HANG, Process

if TYPE_CHECKING:
    from .dump import ProcessDump

SLACK_S = 2.0  # beyond the timeout, for a watchdog that cannot look


@dataclass
class Hang:
    """What is known of one process. `outside`: the reason that only could be seen from here; "" where there is none."""

    told: str = ""  # the last report that was passed on
    silent: bool = False
    stopped_at: float = 0.0  # when it was last seen stopped, by the wall clock
    stop_told: bool = False
    outside: str = ""
    hazards: list[str] = field(default_factory=list)


class HangWatch:
    """`look` as often as you like. `found` by the name of the process's folder."""

    def __init__(self, program: Program, timeout_s: float, *, kill: bool, say: Callable[[str], None]) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._kill = kill
        self._say = say
        self._looked = self._awake = time.time()
        self.found: dict[str, Hang] = {}

    def look(self, watched: Sequence[Process]) -> None:
        """Pass on what is new."""
        now = time.time()
        if now - self._looked > self._timeout_s / 2:
            self._awake = now  # this machine was asleep, or we were stopped: everybody was silent
        self._looked = now
        for process in watched:
            hang = self.found.setdefault(process.folder.name, Hang())
            self._told(process, hang)
            beat = process.beat()
            silent_s = 0.0 if beat is None else now - max(beat, self._awake)
            if process.stopped():
                hang.stopped_at = now
                self._stopped(process, hang, silent_s)
            elif min(silent_s, now - hang.stopped_at) < self._timeout_s + SLACK_S:  # let go on, it needs a moment
                hang.silent = False
            elif not hang.silent and process.alive() and not _ended_or_unguarded(process.result() or {}):
                hang.silent = True
                self._unseen(process, hang, silent_s)

    def _told(self, process: Process, hang: Hang) -> None:
        try:
            text = (process.folder / HANG).read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        if text != hang.told:
            hang.told = text
            found = json.loads(text)
            self._report(process, hang, f"{found['label']}: {found['reason']}")

    def _stopped(self, process: Process, hang: Hang, silent_s: float) -> None:
        if silent_s >= self._timeout_s and not hang.stop_told:
            hang.stop_told = True
            lets_go_on = f"kill -CONT {process.pid} lets it go on"
            self._say(f"process {process.pid} is stopped, by a signal or a debugger: {lets_go_on}")

    def _unseen(self, process: Process, hang: Hang, silent_s: float) -> None:
        dump = _dump(process, hung=True)
        told = "; ".join(finding.text for finding in dump.diagnosis.findings) if dump is not None else ""
        hang.outside = told or "not even its watchdog could run: native code holds the interpreter lock"
        self._report(process, hang, f"hang: nothing has moved for {silent_s:.0f} s; {hang.outside}", dump)

    def _report(self, process: Process, hang: Hang, text: str, dump: ProcessDump | None = None) -> None:
        self._say(f"process {process.pid} ({process.program}): {text}")
        pyspy_dump(process.pid, process.folder)
        dump = dump or _dump(process, hung=False)
        if dump is not None:
            hang.hazards = [words(match) for match in dump.hazards]
        for hazard in hang.hazards:
            self._say(hazard)
        self._say(f"stacks of all threads: {process.folder / STACKS}")
        if self._kill:
            self._say(f"--on-hang kill: process {self._program.pid} and those below it are ended")
            self._program.kill()
        else:
            self._say("it still runs: Ctrl-C ends it, twice if other threads hang too; or --on-hang kill the next time")


def _ended_or_unguarded(result: Mapping[str, Any]) -> bool:
    """Whether nobody writes any more: the process has said its last words, or its watchdog could not run, and said so."""
    probes = result.get("probes") or {}
    return bool(result.get("final")) or str(probes.get("watchdog", "")).startswith("unavailable")


def _dump(process: Process, *, hung: bool) -> ProcessDump | None:
    """The process from outside, with native frames where they may be read: signatures of the catalogue name native locks.

    `hung`: what computes is then no sign that it gets on. What cannot be read is said in the evidence, with the reason; None
    where that is everything.
    """
    from .dump import dump_process  # with the catalogue: the start of a program does not wait for it

    found, missing = None, ""
    try:
        found = dump_process(process.pid, native=True, timeout_s=PYSPY_SECONDS, hung=hung)
        missing = found.note
    except UserError as error:
        missing = str(error)
    if missing:
        with open(process.folder / STACKS, "a", encoding="utf-8") as file:
            file.write(f"=== from outside: {missing}\n")
    return found
