"""A lock for workloads that says who holds it and who waits: small programs of the catalogue, and anybody's own."""

from __future__ import annotations

import threading

from harness.core.workload import Context


class ReportedLock:
    """A plain, not re-entrant lock. `holder`: the worker that has it, or "".

    `with lock.held("drafter-0"):` … A wait is told through `Context.waiting`, so that a schedule can tell that it stands
    against a plan, and the watchdog that it is part of a deadlock.
    """

    def __init__(self, name: str, ctx: Context) -> None:
        self.name = name
        self.holder = ""
        self._ctx = ctx
        self._lock = threading.Lock()

    def acquire(self, worker: str) -> None:
        """Waits until `worker` has it."""
        if not self._lock.acquire(blocking=False):
            with self._ctx.waiting(worker, self.name, self._holders):
                self._lock.acquire()
        self.holder = worker

    def release(self) -> None:
        """From any thread."""
        self.holder = ""
        self._lock.release()

    def held(self, worker: str) -> _Held:
        """For a `with` block."""
        return _Held(self, worker)

    def _holders(self) -> tuple[str, ...]:
        return (self.holder,) if self.holder else ()


class _Held:
    def __init__(self, lock: ReportedLock, worker: str) -> None:
        self._lock, self._worker = lock, worker

    def __enter__(self) -> None:
        self._lock.acquire(self._worker)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
