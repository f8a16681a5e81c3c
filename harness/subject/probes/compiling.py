"""Compiles by thread, and torch's compile lock: who waits for it, who holds it."""

from __future__ import annotations

from harness.core.waitgraph import Edge, edges_of
from harness.torch_internals.compile_lock import CompileLock
from harness.torch_internals.compiles import Compiles

from ..schedules.base import Wait
from .base import Quiet, Scope, said


class CompilesProbe(Quiet):
    """Counts graphs by worker; marks threads that are inside a compile or a lazy backward lowering."""

    name = "compiles"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._threads = scope.threads
        self._trial = scope.trial
        self._points = scope.points
        self._adapter = Compiles()

    def install(self) -> str:
        """Wraps the contexts that torch opens around each compile."""
        return said(self._adapter.install(self))

    def compile_start(self, what: str) -> None:
        """`frame` (Dynamo translates one), `graph` (the backend gets one), `cudagraph`."""
        self._threads.current().compiling += 1
        self._log.emit("compile.start", f',"what":"{what}"')
        self._pass("enter", what)

    def compile_end(self, what: str, ok: bool) -> None:
        """A graph that ended well is a compile."""
        self._pass("exit", what)
        thread = self._threads.current()
        thread.compiling -= 1
        self._log.emit("compile.end", f',"what":"{what}","ok":{"true" if ok else "false"}')
        if what == "graph" and ok:
            if thread.worker:
                self._trial.tally(thread.worker).compiles += 1
            else:
                self._trial.other_compiles += 1

    def backward_lowering_enter(self) -> None:
        """The backward graph of an earlier compile is lowered at its first use."""
        self._threads.current().compiling += 1
        self._log.emit("backward_lowering.enter")
        self._points.reach("backward_lowering.enter")

    def backward_lowering_exit(self, ok: bool) -> None:
        """It was, or failed."""
        self._threads.current().compiling -= 1
        self._log.emit("backward_lowering.exit", f',"ok":{"true" if ok else "false"}')
        self._points.reach("backward_lowering.exit")

    def _pass(self, side: str, what: str) -> None:
        if what == "cudagraph":
            self._points.reach(f"cudagraph.record.{side}", "trees")
        else:
            self._points.reach(f"compile.{side}", what)


class CompileLockProbe(Quiet):
    """Events, and the edges of the wait-for graph."""

    name = "compile_lock"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._threads = scope.threads
        self._points = scope.points
        self._adapter = CompileLock()
        self._trial = scope.trial
        self._wait = Wait("torch's compile lock", self._owner)
        self._began: dict[int, int] = {}  # by thread

    def install(self) -> str:
        """Replaces the lock by one that says what happens to it."""
        found = self._adapter.install(self)
        if self._points.on:
            self._adapter.before_trying(lambda: self._points.trying("compile"))
        return said(found)

    def compile_lock_wait(self) -> None:
        """Contended: about to wait."""
        self._began[self._threads.current().ident] = self._log.emit("compile_lock.wait")
        self._points.reach("compile_lock.wait")
        self._points.blocked(self._wait)

    def compile_lock_acquired(self) -> None:
        """Taken, outermost level."""
        at = self._log.emit("compile_lock.acquired")
        thread = self._threads.current()
        began = self._began.pop(thread.ident, None)
        if began is not None and thread.waits is None:
            self._trial.waited(thread.worker, "compile_lock", began, at)
        self._points.unblocked()
        self._points.reach("compile_lock.acquired")

    def compile_lock_released(self) -> None:
        """Let go, outermost level."""
        self._log.emit("compile_lock.released")
        self._points.reach("compile_lock.released")

    def _owner(self) -> tuple[int, ...]:
        lock = self._adapter.lock
        owner = None if lock is None else lock.owner
        return () if owner is None else (owner,)

    def edges(self) -> list[Edge]:
        """Every waiter waits for the owner."""
        lock = self._adapter.lock
        if lock is None or lock.owner is None:
            return []
        names = [self._label(ident) for ident in lock.waiters()]
        return edges_of("torch's compile lock", [self._label(lock.owner)], names)

    def _label(self, ident: int) -> str:
        thread = self._threads.by_ident.get(ident)
        return f"thread {ident}" if thread is None else thread.label()
