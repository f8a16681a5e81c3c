"""Runs a planted program in this process under a schedule, and says what came of it. Milliseconds a run."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness import locks
from harness.core.plan import Plan
from harness.core.recording import Recording, read_recording
from harness.core.waitgraph import find_cycle
from harness.core.workload import Context, Worker
from harness.subject.context import TrialContext
from harness.subject.identity import Threads
from harness.subject.points import Points
from harness.subject.probes.waits import WaitsProbe
from harness.subject.record import Trial
from harness.subject.schedules import make_schedule
from harness.subject.schedules.base import Setting

WAIT_S = 30.0


class Planted(Protocol):
    """A program: fresh for each run. `racy` says after it whether the planted error happened."""

    def workers(self, ctx: Context) -> list[Worker]: ...

    def racy(self) -> bool: ...


@dataclass
class Run:
    """One run that has ended."""

    racy: bool
    deadlock: bool
    told: dict[str, Any]  # what the schedule says, as in result.json
    hopeless: bool  # what it said when the threads had ended
    recording: Recording | None
    seconds: float

    @property
    def failed(self) -> bool:
        return self.racy or self.deadlock


class Stopped(Exception):
    """A lock of a program that was found in a deadlock."""


class StoppableLock:
    """As `harness.core.reported.ReportedLock`, but a deadlock on it can be ended, since these runs share a process."""

    def __init__(self, name: str, ctx: Context) -> None:
        self.name, self.holder, self.ctx = name, "", ctx
        self._lock = threading.Lock()

    def acquire(self, worker: str) -> None:
        if not self._lock.acquire(blocking=False):
            with self.ctx.waiting(worker, self.name, lambda: (self.holder,) if self.holder else ()):
                while not self._lock.acquire(timeout=0.002):
                    if getattr(self.ctx, "stopped", False):
                        raise Stopped(self.name)
        self.holder = worker

    def release(self) -> None:
        self.holder = ""
        self._lock.release()


class SilentLog:
    """An event log that keeps nothing."""

    last_ns = 0

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def emit(self, kind: str, extra: str = "") -> int:
        return time.perf_counter_ns()


def run(
    make: Callable[[], Planted],
    schedule: str = "none",
    *,
    plan: Plan | None = None,
    recording: Recording | None = None,
    tune: Callable[[Any], None] = lambda schedule: None,
    **extra: Any,
) -> Run:
    """`make()` under the schedule. Fails the test if a thread outlives `WAIT_S`.

    `tune` is given the schedule before the threads start.
    """
    threads, log, trial, points = Threads(), SilentLog(), Trial(), Points()
    strategy = locks.make_strategy("none", workers=())
    ctx = TrialContext({}, strategy, log, threads, trial, points)  # type: ignore[arg-type]
    if plan is not None:
        extra["plan"] = plan.to_json()
    if recording is not None:
        extra["recording"] = recording.to_json()
    program = make()
    workers = program.workers(ctx)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        made = make_schedule(schedule, Setting(extra, threads, Path(folder), log.now_ns, {}))
        if made is not None:
            points.connect(made, threads)
        points.begin({worker.name: worker.role for worker in workers})
        tune(made)
        deadlock = _run_threads(workers, threads, points, ctx)
        hopeless = points.hopeless()
        told = points.finish()
        kept = read_recording(Path(folder)) if told.get("recording") else None
    return Run(program.racy(), deadlock, told, hopeless, kept, time.perf_counter() - began)


def _run_threads(workers: list[Worker], threads: Threads, points: Points, ctx: Any) -> bool:
    errors: list[BaseException] = []

    def body(worker: Worker) -> None:
        record = threads.current()
        record.worker = worker.name
        points.started(record)
        try:
            worker.run()
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001  # shown below, on the test's own thread
            errors.append(error)
        finally:
            points.ended(record)

    running = [threading.Thread(target=body, args=(worker,), name=worker.name, daemon=True) for worker in workers]
    for thread in running:
        thread.start()
    waits = WaitsProbe(_scope(threads))
    deadline, seen = time.monotonic() + WAIT_S, 0
    while any(thread.is_alive() for thread in running):
        assert time.monotonic() < deadline, [thread.name for thread in running if thread.is_alive()]
        running[0].join(0.002)
        for thread in running:
            thread.join(0.0005)
        seen = seen + 1 if find_cycle(waits.edges()) else 0
        if seen >= 5 and not hasattr(ctx, "stopped"):
            ctx.stopped = True
    assert not errors, errors
    return hasattr(ctx, "stopped")


def _scope(threads: Threads) -> Any:
    class Scope:
        pass

    scope: Any = Scope()
    scope.threads = threads
    return scope
