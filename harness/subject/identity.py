"""Who a thread is: its name, the worker it works for, the regions it is in, what it waits for.

One `Thread` record an OS thread, found through thread-local storage and, for other threads' eyes, by ident. Only the
owning thread writes its record, and every write is one store or list operation, so readers need no lock.

Autograd's device threads are started by C++ and serve the graphs of several workers in turn. There the worker is the
one whose graph task is running: `Threads.tag_task` notes the task's id when its first node runs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Thread:
    """One OS thread of the subject."""

    name: str
    ident: int
    native_id: int
    engine: bool
    head: str  # the constant JSON members of its events
    worker: str = ""
    regions: list[str] = field(default_factory=list)
    tracing: int = 0  # depth of fx.Tracer.trace
    compiling: int = 0  # depth of Dynamo frame compiles and lazy backward lowerings
    in_engine: int = 0  # depth of autograd engine calls made by this thread
    engine_device: str = ""  # "cuda:0": of the graph it gave to the engine, or, for a device thread, that it serves
    step: int = 0
    waits: Any = None  # the workload's own wait that it is in (`schedules.base.Wait`)
    failing: bool = False  # an exception has left a region of its, and nobody was told of it yet
    collision: list[dict[str, str]] | None = None  # who was tracing when this thread's flag check said True

    @property
    def region(self) -> str:
        """The innermost region, "" outside all."""
        regions = self.regions
        return regions[-1] if regions else ""

    def label(self) -> str:
        """`autograd-4711 (drafter-1)`: the worker too, where it is not the thread's own name."""
        return self.name if self.worker in ("", self.name) else f"{self.name} ({self.worker})"


class Threads:
    """The records of all threads that were seen, by ident."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._graph_task_id: Callable[[], int] = _no_task
        self._tasks: dict[int, str] = {}
        self.by_ident: dict[int, Thread] = {}

    def failing(self) -> bool:
        """Whether an exception is on its way in a worker's own thread."""
        return any(thread.failing for thread in list(self.by_ident.values()) if not thread.engine)

    def current(self) -> Thread:
        """This thread's record, made at its first call."""
        thread: Thread | None = getattr(self._local, "record", None)
        if thread is None:
            thread = self._local.record = self._make()
            self.by_ident[thread.ident] = thread
        if thread.engine:
            thread.worker = self._tasks.get(self._graph_task_id(), thread.worker)
        return thread

    def _make(self) -> Thread:
        ident = threading.get_ident()
        # Not current_thread(): it would register a dummy object for a thread that Python did not start.
        known = threading._active.get(ident)  # type: ignore[attr-defined]
        engine = known is None or isinstance(known, threading._DummyThread)
        native = threading.get_native_id()
        name = f"autograd-{native}" if engine else known.name
        return Thread(name, ident, native, engine, f'"th":{json.dumps(name)},"id":{ident}')

    def use_graph_tasks(self, graph_task_id: Callable[[], int]) -> None:
        """How to ask which autograd graph the current thread works for."""
        self._graph_task_id = graph_task_id

    def tag_task(self, task: int, worker: str, device: str) -> None:
        """Autograd graph task `task` belongs to `worker`; called on the thread that runs its first node."""
        self._tasks[task] = worker
        thread = self.current()
        if thread.engine:
            thread.engine_device = device

    def label_of(self, ident: int) -> str:
        """Its label; "" for a thread that was never seen. A thread that has ended is still known."""
        thread = self.by_ident.get(ident)
        return "" if thread is None else thread.label()

    def of_worker(self, worker: str) -> list[Thread]:
        """The threads that now work for `worker`, its own before the engine's."""
        found = [thread for thread in list(self.by_ident.values()) if thread.worker == worker]
        return sorted(found, key=lambda thread: thread.engine)


def _no_task() -> int:
    return -1
