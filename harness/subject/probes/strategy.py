"""Waits and holds of the lock strategy, as events and as sums."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.waitgraph import Edge, edges_of
from harness.locks import Strategy

from ..identity import Threads
from ..schedules.base import BARRIER, LOCK, Wait
from .base import Quiet, Scope

BY_LOCK, BY_BARRIER = "strategy_lock", "strategy_barrier"
"""What a worker is said to have waited for (`waited_s`)."""


@dataclass
class LockSums:
    """One lock of the strategy: how often it was waited for and taken, and for how long (nanoseconds)."""

    waits: int = 0
    taken: int = 0
    wait_ns: int = 0
    hold_ns: int = 0


class StrategyProbe(Quiet):
    """The observer that the strategy calls, outside its mutexes. One sum a thread, so that no lock is needed."""

    name = "strategy"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._trial = scope.trial
        self._threads = scope.threads
        self._points = scope.points
        self._name = scope.scenario.lock
        self._began: dict[tuple[int, str, str], int] = {}
        self._sums: dict[tuple[int, str], LockSums] = {}
        self.strategy: Strategy | None = None

    def install(self) -> str:
        """Always there: the locks are the harness's own."""
        return "ok"

    def event(self, event: str, lock: str, worker: str) -> None:
        """As `harness.locks.Observer`."""
        barrier = event.startswith("barrier")
        kind = event if barrier else f"strategy_lock.{event}"
        at = self._log.emit(kind, f',"lock":"{lock}"')
        ident = self._threads.current().ident
        sums = self._sums.get((ident, lock))
        if sums is None:
            sums = self._sums.setdefault((ident, lock), LockSums())
        if event in ("wait", "barrier.wait"):
            sums.waits += 1
            self._began[ident, lock, "wait"] = at
        elif event in ("acquired", "barrier.leave"):
            sums.taken += 1
            began = self._began.pop((ident, lock, "wait"), at)
            sums.wait_ns += at - began
            if self._threads.current().waits is None:  # else it is a part of the workload's own wait
                self._trial.waited(worker, BY_BARRIER if barrier else BY_LOCK, began, at)
            self._began[ident, lock, "hold"] = at
        elif event == "released":
            sums.hold_ns += at - self._began.pop((ident, lock, "hold"), at)
        self._tell(event, lock, worker, ident)

    def _tell(self, event: str, lock: str, worker: str, ident: int) -> None:
        """The schedule: a point first, where it may hold the thread; then that it waits, or before that that it did."""
        points = self._points
        if event in ("acquired", "barrier.leave"):
            points.unblocked()
        if event == "barrier.wait":
            points.reach(event, lock)
            points.blocked(Wait(f"the {lock} of {self._name}", lambda: self._held_by(lock, worker, ident), kind=BARRIER))
        elif event != "barrier.leave":
            points.reach(f"strategy_lock.{event}", lock)
            if event == "wait":
                named = f"the {lock} lock ({self._name})"
                points.blocked(Wait(named, lambda: self._held_by(lock, worker, ident), kind=LOCK))

    def _held_by(self, lock: str, worker: str, ident: int) -> list[str | int]:
        """Who can end this wait now; [] once it is over, or was aborted."""
        for state in self.strategy.wait_graph() if self.strategy is not None else ():
            if state.name == lock and (ident in state.waiter_threads or worker in state.waiters):
                return list(state.holder_threads or state.holders)
        return []

    def sums(self) -> dict[str, dict[str, float]]:
        """By lock: waits, times taken, seconds waited and held, over all threads."""
        total: dict[str, dict[str, float]] = {}
        for (_, lock), sums in list(self._sums.items()):
            into = total.setdefault(lock, {"waits": 0, "taken": 0, "wait_s": 0.0, "hold_s": 0.0})
            into["waits"] += sums.waits
            into["taken"] += sums.taken
            into["wait_s"] += sums.wait_ns / 1e9
            into["hold_s"] += sums.hold_ns / 1e9
        return total

    def edges(self) -> list[Edge]:
        """From the strategy's own account."""
        if self.strategy is None:
            return []
        found: list[Edge] = []
        for state in self.strategy.wait_graph():
            what = f"the {state.name} barrier" if state.name == "barrier" else f"the {state.name} lock"
            holders = [_label(self._threads, i, w) for w, i in _pairs(state.holders, state.holder_threads)]
            waiters = [_label(self._threads, i, w) for w, i in _pairs(state.waiters, state.waiter_threads)]
            found += edges_of(what, holders, waiters)
        return found


def _pairs(workers: tuple[str, ...], idents: tuple[int, ...]) -> list[tuple[str, int]]:
    return list(zip(workers, idents or (0,) * len(workers), strict=False))


def _label(threads: Threads, ident: int, worker: str) -> str:
    """The thread's label, so that edges of different locks meet; of the worker's own thread where none is named."""
    thread = threads.by_ident.get(ident)
    if thread is None:
        own = threads.of_worker(worker)
        return own[0].label() if own else worker
    return thread.label()
