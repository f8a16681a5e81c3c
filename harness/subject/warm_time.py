"""What a worker waited for once all were warm: from the last first good step of those who take steps to its own last one.

A wait belongs to the good step that it comes before, so what a worker waits for after its last step, when there is nothing
left to do, is no one's. Only its own thread and, while that waits in backward, the engine's write here.

How long its thread ran in that time (`cpu_s`) is asked for once a step, at its end, which is on the worker's own thread; a wait
may end on the engine's. What other threads do for it, as autograd's does in backward on a GPU, is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

Waited = dict[tuple[str, str], int]
"""(what for, for whom; "" where that is nobody in particular) → ns."""


@dataclass
class WarmTime:
    """One worker's. `since_ns`: when all were warm; `until_ns`: the end of its last good step since then; `cpu_ns`: how long
    its thread ran between the two, None: not known."""

    since_ns: int | None = None
    until_ns: int | None = None
    waited: Waited = field(default_factory=dict)
    cpu_ns: int | None = 0
    _pending: Waited = field(default_factory=dict)
    _early_ns: int = 0  # waited since its last good step, before all were warm
    _last: tuple[int, int, int] | None = None  # of its last good step: its end, its thread's time then, and which thread

    def wait(self, what: str, whom: str, began_ns: int, ended_ns: int, warm_ns: int | None) -> None:
        """A wait has ended; `warm_ns`: since when all are warm, None: they are not."""
        self._early_ns += max(0, (ended_ns if warm_ns is None else min(ended_ns, warm_ns)) - began_ns)
        if warm_ns is None:
            return
        self.since_ns = warm_ns
        counted = ended_ns - max(began_ns, warm_ns)
        if counted > 0:
            self._pending[what, whom] = self._pending.get((what, whom), 0) + counted

    def step(self, at_ns: int, warm_ns: int | None) -> None:
        """A good step has ended, on this thread."""
        before, self._last = self._last, (at_ns, time.thread_time_ns(), get_ident())
        early_ns, self._early_ns = self._early_ns, 0
        if warm_ns is None or at_ns <= warm_ns:
            self._pending.clear()
            return
        self.since_ns, self.until_ns = warm_ns, at_ns
        if before is None or before[2] != self._last[2] or self.cpu_ns is None:
            self.cpu_ns = None  # its first step, or another thread's than the one before: there is nothing to hold it against
        else:
            at_work_ns = at_ns - max(before[0], warm_ns) - sum(self._pending.values())
            at_work_early_ns = max(0, warm_ns - before[0] - early_ns)
            self.cpu_ns += _part(self._last[1] - before[1], at_work_ns, at_work_early_ns)
        for key, ns in self._pending.items():
            self.waited[key] = self.waited.get(key, 0) + ns
        self._pending.clear()

    @property
    def seconds(self) -> float | None:
        """How long; None: it took no step in that time."""
        return None if self.until_ns is None or self.since_ns is None else (self.until_ns - self.since_ns) / 1e9

    def as_json(self) -> dict[str, Any]:
        """`warm_s`, `waited_s` by what, `waited_on_s` by what and whom, `busy`: the share in which it waited for nothing,
        `cpu_s`: how long its own thread ran."""
        waited: dict[str, float] = {}
        on: dict[str, dict[str, float]] = {}
        for (what, whom), ns in list(self.waited.items()):  # copied in one go: the worker may still run
            waited[what] = waited.get(what, 0.0) + ns / 1e9
            if whom:
                on.setdefault(what, {})[whom] = ns / 1e9
        warm = self.seconds
        busy = max(0.0, 1 - sum(waited.values()) / warm) if warm else None
        cpu = None if warm is None or self.cpu_ns is None else self.cpu_ns / 1e9
        return {"warm_s": warm, "waited_s": waited, "waited_on_s": on, "busy": busy, "cpu_s": cpu}

    def take(self, told: Mapping[str, Any]) -> None:
        """The account of a worker's own process, as `as_json` there said it."""
        if told["warm_s"] is None:
            return
        self.since_ns, self.until_ns = 0, int(told["warm_s"] * 1e9)
        self.cpu_ns = None if told["cpu_s"] is None else int(told["cpu_s"] * 1e9)
        for what, seconds in told["waited_s"].items():
            whom = told["waited_on_s"].get(what, {})
            self.waited.update({(what, name): int(part * 1e9) for name, part in whom.items()})
            self.waited[what, ""] = int((seconds - sum(whom.values())) * 1e9)


def _part(cpu_ns: int, at_work_ns: int, early_ns: int) -> int:
    """Of what a thread ran from one step's end to the next's, that once all were warm: by how long it waited for nothing
    then, and how long before."""
    both = max(0, at_work_ns) + early_ns
    return cpu_ns * max(0, at_work_ns) // both if both else 0
