"""The one thread that the harness adds to a subject: it tells a deadlock or a hang from work, and says so in time.

`deadlock`: the same wait-for cycle at every look for 5 s. `hang`: no event for the hang timeout, which is four times as
long while a compile is open, since a compile of a large graph is silent. Only then are the stacks, local variables and
source of the program's own threads read for what they wait for (`live`); a cycle found so is a deadlock too. Both end the
trial: the result is written from
here with all stacks, and the executor, which sees `hang.json`, adds native stacks and kills the process group. The
watchdog's own silence is noticed from outside by the age of the file `heartbeat`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO

from harness.core.waitgraph import Edge

from .eventlog import EventLog
from .live import explain_hang
from .standing import DEADLOCK_S, LOOK_S, PATIENCE, StandingCycle


def _no_name(_ident: int) -> str:
    return ""


def _nobody(_circle: bool, _moving: bool) -> None:
    return None


class Watchdog:
    """`start` … `stop`; `on_stuck(label, reason)` is called at most once, on the watchdog's thread."""

    def __init__(
        self,
        folder: Path,
        log: EventLog,
        stacks: IO[str],
        hang_timeout_s: float,
        edges: Callable[[], list[Edge]],
        compiling: Callable[[], bool],
        on_stuck: Callable[[str, str], None],
        deadlock_s: float = DEADLOCK_S,
        name_of: Callable[[int], str] = _no_name,
        on_look: Callable[[bool, bool], None] = _nobody,
    ) -> None:
        self._folder = folder
        self._log = log
        self._stacks = stacks
        self._timeout_s = hang_timeout_s
        self._edges = edges
        self._compiling = compiling
        self._on_stuck = on_stuck
        self._deadlock_s = deadlock_s
        self._name_of = name_of  # a thread's name, as in the edges, by its ident
        self._on_look = on_look  # told of each look: a circle of waits; something moves
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="harness-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End and wait for the end."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        cycle = StandingCycle(self._deadlock_s)
        asked = -1  # the last event before the silence that was looked into while a compile was open
        heartbeat = self._folder / "heartbeat"
        newest = self._log.last_ns
        while not self._stop.wait(LOOK_S):
            heartbeat.touch()
            if told := cycle.look(self._edges(), time.monotonic()):
                self._report("deadlock", told)
                return
            newest, before = self._log.last_ns, newest
            self._on_look(bool(cycle.edges), newest != before or self._compiling())
            silent_s = (self._log.now_ns() - self._log.last_ns) / 1e9
            if silent_s <= self._timeout_s:
                continue
            before = self._log.last_ns
            patient = self._compiling() and silent_s <= self._timeout_s * PATIENCE
            if patient and before == asked:
                continue
            asked = before
            # Where the probes know the cycle, stacks add little, and to read them can take seconds of a loaded machine.
            label, why = ("deadlock", self._in_words(cycle.edges)) if cycle.again else self._explain()
            # A cycle of waits is no compile that takes its time.
            if self._log.last_ns == before and (label == "deadlock" or not patient):
                self._report(label, f"no event for {silent_s:.0f} s; {why}")
                return

    def _in_words(self, cycle: list[Edge]) -> str:
        """The cycle, and who waits behind it."""
        return "; ".join(dict.fromkeys(map(str, [*cycle, *self._edges()])))

    def _explain(self) -> tuple[str, str]:
        """(label, why) of a silence, from the stacks of all threads and what the probes know."""
        edges = self._edges()
        known = [str(edge) for edge in edges]
        try:
            found = explain_hang(self._name_of, edges)
        except Exception:  # noqa: BLE001  # the hang is to be reported in any case; the traceback goes to the evidence
            self._stacks.write(traceback.format_exc())
            return "hang", "; ".join([*known, "more could not be found out, see stacks.txt"])
        for wait in found.waits:
            self._stacks.write(f"{wait.thread.name} waits for {wait.what}{f': {wait.nobody}' if wait.nobody else ''}\n")
        label = "deadlock" if any(finding.kind == "cycle" for finding in found.findings) else "hang"
        told = found.in_words()
        more = [edge for edge in known if edge not in told]
        return label, "; ".join([*([told] if told else []), *more]) or "no known lock is waited for"

    def _report(self, label: str, reason: str) -> None:
        self._log.emit(label, f',"why":{json.dumps(reason)}')
        self._stacks.write(f"=== {label}: {reason}\n")
        self._stacks.flush()
        faulthandler.dump_traceback(file=self._stacks, all_threads=True)
        self._on_stuck(label, reason)
        partial = self._folder / "hang.part"
        partial.write_text(json.dumps({"label": label, "reason": reason}) + "\n", encoding="utf-8")
        os.replace(partial, self._folder / "hang.json")  # the executor's sign: take native stacks, then kill
