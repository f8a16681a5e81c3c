"""The workload's own waits (queues, barriers, locks, joins), as it tells them through `Context.waiting`."""

from __future__ import annotations

import math
import time
import traceback
from dataclasses import dataclass

from harness.core.waitgraph import Edge

from ..identity import Thread
from ..live import time_limit
from ..schedules.base import Wait
from .base import Quiet, Scope

LIMIT_S = 0.5
"""How long a wait stands before its thread's stack is read for its time limit, once: no cycle counts before 1 s."""


@dataclass
class _Standing:
    """A thread that was at this step in such a wait at every look since then. `limit`: of the call it stands in."""

    step: int
    wait: Wait
    since: float
    limit: float | None = None
    asked: bool = False


class WaitsProbe(Quiet):
    """Edges for the watchdog; the schedule hears of the waits from the context."""

    name = "waits"

    def __init__(self, scope: Scope) -> None:
        self._threads = scope.threads
        self._standing: dict[int, _Standing] = {}  # by ident

    def install(self) -> str:
        """Always there: the workload tells."""
        return "ok"

    def edges(self) -> list[Edge]:
        """A thread waits for all that it names; one that needs only one of several is in no cycle by one of them."""
        found = []
        now = time.monotonic()
        for thread in list(self._threads.by_ident.values()):
            wait: Wait | None = thread.waits
            if wait is None:
                self._standing.pop(thread.ident, None)
                continue
            if not self._stands(thread, wait, now):
                continue
            on = list(wait.on() or ())
            if wait.any_of and len(on) > 1:
                continue
            found += [Edge(thread.label(), wait.what, self._label(member)) for member in on]
        return found

    def _stands(self, thread: Thread, wait: Wait, now: float) -> bool:
        """Not if the thread has taken a step since the last look, nor if its time limit may yet end the wait.

        One that has waited for longer than its limit, or anew where that is not known, and has taken no step, asks again
        and again.
        """
        before = self._standing.get(thread.ident)
        if before is None or (before.step, before.wait.what) != (thread.step, wait.what):
            self._standing[thread.ident] = _Standing(thread.step, wait, now)
            return before is None
        if not before.asked and now - before.since >= LIMIT_S:
            before.asked = True
            try:
                before.limit = time_limit(thread.ident)
            except Exception:  # noqa: BLE001 - of source that nobody foresaw: the watchdog goes on, and the wait counts
                traceback.print_exc()  # into the trial's output
        if before.limit is None or now - before.since > before.limit:
            return True
        return before.limit == math.inf and wait is not before.wait

    def _label(self, member: str | int) -> str:
        if isinstance(member, int):
            thread = self._threads.by_ident.get(member)
            return f"thread {member}" if thread is None else thread.label()
        own = [thread for thread in self._threads.of_worker(member) if not thread.engine]
        return own[0].label() if own else member
