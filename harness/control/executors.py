"""The local executor: up to `jobs` subjects at a time, each a fresh process, watched from outside.

One loop in one thread: a selector over the start server's socket and the subjects' output pipes, with a short timeout
for clocks. Nothing here can wait for a subject, so nothing a subject does can hang the control side. When a subject
hangs, its evidence is taken first (stacks by faulthandler through SIGUSR1, native ones by py-spy), then its process
group is killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO

from harness.core.errors import UserError

from .caches import OWN, begin_with
from .evidence import pyspy_dump, wait_for_stacks, why_stuck
from .gpu_load import GpuLoad, warm_window
from .host_memory import killed_for_memory
from .request import Executor, OnStart, Row, TrialRequest
from .rows import Ending, trial_row
from .server_client import ServerDied, StartServer

STDOUT_CAP = 1 << 20  # bytes of a subject's output that are kept
TICK_S = 0.1
SILENCE_S = 1.0  # how much longer than the hang timeout the watchdog itself may be silent
GRACE_S = 20.0  # from a kill to the report of the end


@dataclass
class _Running:
    request: TrialRequest
    pipe: int
    out: IO[bytes]
    began: float
    pid: int | None = None
    how: str = "exited"
    wrote: int = 0
    cut: int = 0
    started_s: float | None = None
    kill_at: float | None = None
    why: str = ""  # it hangs, as seen from outside
    cycle: bool = False  # likewise: in a circle of waits
    seen_alive: float = field(default_factory=time.monotonic)
    alive_mark: int = 0
    killed_before: int | None = None  # by the kernel, for lack of memory


class LocalExecutor:
    """Runs subjects on this machine through one start server. `how`: fork, exec, or auto (fork where it is safe)."""

    def __init__(self, *, python: str | None = None, jobs: int = 1, how: str = "auto") -> None:
        if jobs < 1:
            raise UserError(f"--jobs must be at least 1, got {jobs}")
        self._jobs = jobs
        self._how = how
        self._fork = False
        self._ready = False
        self.torch = ""
        self._server = StartServer(python, preload="none" if how == "exec" else "auto")
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ, None)
        self._running: dict[str, _Running] = {}
        self._gpus = GpuLoad()
        self._heard: deque[dict[str, object]] = deque()
        self._on_row: Callable[[Row], None] = _drop

    def run(
        self,
        trials: Sequence[TrialRequest],
        on_start: OnStart,
        on_row: Callable[[Row], None],
    ) -> None:
        """Run all trials; a row is reported when its process group is gone."""
        waiting = deque(trials)
        self._on_row = on_row
        try:
            while waiting or self._running:
                while waiting and self._ready and len(self._running) < self._jobs:
                    request = waiting.popleft()
                    if on_start(request) is not False:
                        self._launch(request)
                self._turn()
        except ServerDied as died:
            self._server_died(died, waiting, on_start)
        except KeyboardInterrupt:
            self._interrupt()
            raise

    def wait_ready(self) -> None:
        """Until the start server has its imports done (benchmarks start their clocks then)."""
        while not self._ready:
            self._turn()

    def close(self) -> None:
        """End the server and with it whatever still runs."""
        self._selector.close()
        self._server.close()
        self._gpus.close()
        for running in self._running.values():
            os.close(running.pipe)
            running.out.close()
        self._running.clear()

    # one turn of the loop

    def _turn(self) -> None:
        for key, _ in self._selector.select(TICK_S):
            if key.data is None:
                self._heard.extend(self._server.receive())
                self._hear_all()
            elif key.data in self._running:
                self._drain(self._running[key.data])
        self._gpus.sample()
        now = time.monotonic()
        for running in list(self._running.values()):
            self._watch(running, now)

    def _hear_all(self) -> None:
        while self._heard:  # what a KeyboardInterrupt leaves in it is not lost
            self._hear(self._heard.popleft())

    def _hear(self, message: dict[str, object]) -> None:
        if message["ev"] == "ready":
            self._ready = True
            self.torch = str(message["torch"])
            self._fork = bool(message["fork"])
            return
        running = self._running.get(str(message["trial"]))
        if running is None:
            return
        if message["ev"] == "started":
            running.pid = int(str(message["pid"]))
        else:
            self._ended(running, int(str(message["status"])))

    def _launch(self, request: TrialRequest) -> None:
        cache = begin_with(request)  # before the specification, from whose time on the start of a trial counts
        spec = request.write_spec()
        env = {
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
        }
        read, write = os.pipe()
        os.set_blocking(read, False)
        running = _Running(request, read, open(request.folder / "stdout.txt", "wb"), time.monotonic())  # noqa: SIM115
        running.killed_before = killed_for_memory()
        self._running[request.trial_id] = running
        self._gpus.begin(request.trial_id, request.scenario.devices)
        self._selector.register(read, selectors.EVENT_READ, request.trial_id)
        how = "fork" if self._fork and self._how != "exec" else "exec"
        try:
            self._server.start(request.trial_id, spec, how, env, write)
        finally:
            os.close(write)

    def _drain(self, running: _Running) -> None:
        while True:
            try:
                data = os.read(running.pipe, 65536)
            except BlockingIOError:
                return
            if not data:
                if running.pipe in self._selector.get_map():
                    self._selector.unregister(running.pipe)
                return
            keep = data[: max(0, STDOUT_CAP - running.wrote)]
            running.out.write(keep)
            running.wrote += len(keep)
            running.cut += len(data) - len(keep)

    def _watch(self, running: _Running, now: float) -> None:
        if running.kill_at is not None:
            if now > running.kill_at + GRACE_S:
                raise RuntimeError(f"subject {running.pid} of {running.request.trial_id} outlived SIGKILL")
            return
        request = running.request
        if running.started_s is None and (request.folder / "ready").exists():
            running.started_s = (request.folder / "ready").stat().st_mtime
        beat = request.folder / "heartbeat"
        with contextlib.suppress(FileNotFoundError):
            mark = beat.stat().st_mtime_ns
            if mark != running.alive_mark:
                running.alive_mark, running.seen_alive = mark, now
        if (request.folder / "hang.json").exists():
            self._end_hung(running, "hang", told=True)
        elif now - running.began > request.timeout_s:
            self._end_hung(running, "timeout")
        elif running.alive_mark and now - running.seen_alive > request.hang_timeout_s + SILENCE_S:
            self._end_hung(running, "hang")

    def _end_hung(self, running: _Running, how: str, told: bool = False) -> None:
        """Take the evidence, then kill. `told`: the watchdog has already written the stacks and the result."""
        running.how = how
        if running.pid is not None:
            if not told:
                wait_for_stacks(running.pid, running.request.folder)
                running.why, running.cycle = why_stuck(running.pid)
            if running.request.extra.get("native_stacks", True):
                pyspy_dump(running.pid, running.request.folder)
        self._kill(running)

    def _kill(self, running: _Running) -> None:
        running.kill_at = time.monotonic()
        self._server.kill(running.request.trial_id)

    def _ended(self, running: _Running, status: int | None, text: str = "") -> None:
        request = running.request
        del self._running[request.trial_id]
        self._drain(running)
        if running.pipe in self._selector.get_map():
            self._selector.unregister(running.pipe)
        os.close(running.pipe)
        if running.cut:
            running.out.write(f"\n[{running.cut} further bytes were not kept]\n".encode())
        running.out.close()
        shutil.rmtree(request.folder / OWN, ignore_errors=True)
        start = _start_seconds(request)
        for name in ("heartbeat", "ready"):
            (request.folder / name).unlink(missing_ok=True)
        wall = time.monotonic() - running.began
        for_memory = _more(running.killed_before)
        row = trial_row(
            request, Ending(status, running.how, wall, start, text or running.why, for_memory, running.cycle)
        )
        if load := self._gpus.end(request.trial_id, warm_window(row)):
            row["gpu_load"] = load
        self._on_row(row)

    # the two ways a run is cut short

    def _interrupt(self) -> None:
        self._hear_all()
        for running in list(self._running.values()):
            running.how = "killed"
            self._kill(running)
        deadline = time.monotonic() + GRACE_S
        while self._running and time.monotonic() < deadline:
            self._turn()

    def _server_died(self, died: ServerDied, waiting: deque[TrialRequest], on_start: OnStart) -> None:
        """Every trial gets its row: the interpreter, not a lock, is at fault."""
        for running in list(self._running.values()):
            running.how = "killed" if running.pid is not None else "exited"
            self._ended(running, None, f"the start server died: {died}")
        for request in waiting:
            if on_start(request) is False:
                continue
            request.write_spec()
            (request.folder / "stdout.txt").write_text(died.text[-STDOUT_CAP:], encoding="utf-8")
            self._on_row(trial_row(request, Ending(None, "exited", 0.0, None, f"the start server died: {died}")))


def _more(killed_before: int | None) -> bool | None:
    killed = killed_for_memory()
    return None if killed is None or killed_before is None else killed > killed_before


def _start_seconds(request: TrialRequest) -> float | None:
    """From writing `spec.json` to the subject's `ready` mark, by the file system's clock."""
    try:
        ready = (request.folder / "ready").stat().st_mtime_ns
    except FileNotFoundError:
        return None
    return max(0.0, (ready - (request.folder / "spec.json").stat().st_mtime_ns) / 1e9)


def _drop(row: Row) -> None:
    del row


def check_executor(name: str) -> None:
    """Raise UserError for an executor that this installation does not have; nothing is started."""
    if name != "local":
        raise UserError(f'unknown executor "{name}": this version has "local"')


def make_executor(name: str, *, python: str | None = None, jobs: int = 1) -> Executor:
    """The executor `name`. Raises UserError for one that is not there."""
    check_executor(name)
    return LocalExecutor(python=python, jobs=jobs)
