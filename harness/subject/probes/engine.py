"""Threads that wait in the autograd engine, and which worker a device thread of the engine works for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.waitgraph import Edge
from harness.torch_internals.engine import Engine, current_device, graph_task_id, tag_graph

from ..schedules.base import ENGINE, Wait
from .base import Quiet, Scope, said

ANY = "some device"
"""Of a thread that calls the engine from inside a trace, unless there are several CUDA devices: which it is cannot be asked."""


class EngineProbe(Quiet):
    """Events at both ends of every run of the engine; on a CUDA device, the run's graph is tagged with its worker."""

    name = "engine"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._threads = scope.threads
        self._points = scope.points
        self._adapter = Engine()

    def install(self) -> str:
        """Wraps the engine's one entry."""
        found = self._adapter.install(self)
        if found.ok:
            self._threads.use_graph_tasks(graph_task_id)
        return said(found)

    def engine_enter(self, roots: Sequence[Any]) -> None:
        """About to hand a graph to the engine and to wait for it."""
        thread = self._threads.current()
        thread.in_engine += 1
        # On the CPU the engine runs on the calling thread, which is the worker's own: nothing to tag. Inside a trace or a
        # compile the roots are stand-ins, and to ask one for its device would run a torch operation in the very window; they
        # stand for tensors of the thread's own device.
        if thread.tracing or thread.compiling:
            known = any(other.engine for other in list(self._threads.by_ident.values()))
            device = (current_device() or ANY) if known else ""
        else:
            device = next((str(root.device) for root in roots if _has_a_thread(root)), "")
        thread.engine_device = device
        self._log.emit("engine.enter")
        if device and device != ANY and thread.worker and not (thread.tracing or thread.compiling):
            worker = thread.worker
            for root in roots:
                if getattr(root, "requires_grad", False):
                    tag_graph(root, lambda task: self._threads.tag_task(task, worker, device))
        self._points.reach("engine.enter")
        if device:
            what = f"autograd's thread of {device}"
            self._points.blocked(Wait(what, lambda: self._serving(device), any_of=device == ANY, kind=ENGINE))

    def engine_exit(self) -> None:
        """The engine has returned or raised."""
        thread = self._threads.current()
        thread.in_engine -= 1
        self._log.emit("engine.exit")
        self._points.unblocked()
        self._points.reach("engine.exit")

    def _serving(self, device: str) -> list[int]:
        """The engine's threads of that device; those whose device is not known, while none is known to be of it."""
        engines = [thread for thread in list(self._threads.by_ident.values()) if thread.engine]
        if device == ANY:
            return [thread.ident for thread in engines]
        known = [thread.ident for thread in engines if thread.engine_device == device]
        return known or [thread.ident for thread in engines if not thread.engine_device]

    def edges(self) -> list[Edge]:
        """A thread in the engine waits for the device's thread, whoever's graph that one is running.

        None where it may be any of several: one of them that goes on is enough, so the others close no cycle.
        """
        found = []
        for waiter in list(self._threads.by_ident.values()):
            if waiter.in_engine <= 0 or not waiter.engine_device or waiter.engine:
                continue
            serving = self._serving(waiter.engine_device)
            if waiter.engine_device == ANY and len(serving) > 1:
                continue
            what = f"autograd's thread of {waiter.engine_device}"
            found += [Edge(waiter.label(), what, self._threads.by_ident[ident].label()) for ident in serving]
        return found


def _has_a_thread(root: Any) -> bool:
    """Whether the engine has a thread for the root's device: attributes of the tensor's own, for they run no operator."""
    return bool(getattr(root, "is_cuda", False) or getattr(root, "is_hosted", False))
