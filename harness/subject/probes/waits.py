"""The workload's own waits (queues, barriers, locks, joins), as it tells them through `Context.waiting`."""

from __future__ import annotations

from harness.core.waitgraph import Edge

from ..schedules.base import Wait
from .base import Quiet, Scope


class WaitsProbe(Quiet):
    """Edges for the watchdog; the schedule hears of the waits from the context."""

    name = "waits"

    def __init__(self, scope: Scope) -> None:
        self._threads = scope.threads

    def install(self) -> str:
        """Always there: the workload tells."""
        return "ok"

    def edges(self) -> list[Edge]:
        """A thread waits for all that it names; one that needs only one of several is in no cycle by one of them."""
        found = []
        for thread in list(self._threads.by_ident.values()):
            wait: Wait | None = thread.waits
            if wait is None:
                continue
            on = list(wait.on() or ())
            if wait.any_of and len(on) > 1:
                continue
            found += [Edge(thread.label(), wait.what, self._label(member)) for member in on]
        return found

    def _label(self, member: str | int) -> str:
        if isinstance(member, int):
            thread = self._threads.by_ident.get(member)
            return f"thread {member}" if thread is None else thread.label()
        own = [thread for thread in self._threads.of_worker(member) if not thread.engine]
        return own[0].label() if own else member
