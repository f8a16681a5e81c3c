"""`lock = "process"`: each drafter of the DFlash pipeline in a process of its own.

The trial's process keeps the targets. For each drafter a thread here takes items from its queue and hands them over a
private socket, each when it is asked for; there a fresh interpreter builds and runs that drafter alone. Nothing of torch's
state is shared, so no lock is needed; what it costs is an import, a compile, a copy of every item, and the target's
embedding and `lm_head`, for each drafter.
What a drafter's process did (steps, losses, errors) is merged into the trial's account, so that it is compared like any
other strategy.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from harness.core import errorfile, losses
from harness.core.workload import Context, Scenario, Worker
from harness.pipeline import Pipeline
from harness.pipeline.assembly import place_of
from harness.pipeline.items import Item, LostItem
from harness.pipeline.queues import QueueAborted, QueueTimeout
from harness.pipeline.target_worker import ItemQueue
from harness.pipeline.training import lone_drafter

from .context import TrialContext
from .record import ErrorRecord
from .socket_queue import HEADER, SocketQueue, frame

TICK_S = 0.5
START_S = 180.0  # a drafter's process imports torch and builds its weights before it gives signs of life of its own
OUTCOMES = ("consumed", "skipped", "refused", "lost", "unused")  # of an item that was taken from a queue
SETTINGS = ("lock", "warmup", "schedule")  # axes that a drafter's own process does not have


class SplitPipeline:
    """The workload in the trial's own process."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._inner = Pipeline()
        self._children: list[subprocess.Popen[bytes]] = []
        self._stopped = threading.Event()
        self._accounted: list[int] = []  # drafters whose processes came to their ends and told of it

    def unsupported(self, scenario: Scenario) -> str:
        """As the pipeline's, and what cannot cross a process."""
        if scenario.replicas == "synchronised":
            return "lock=process: averaging gradients across processes is torch.distributed's, not this pipeline's"
        if scenario.warmup != "none":
            return f"lock=process, warmup={scenario.warmup}: what this process compiles does not serve the drafters'"
        if scenario.schedule != "none":
            return f"lock=process, schedule={scenario.schedule}: a schedule orders the threads of one process"
        return self._inner.unsupported(scenario)

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Builds the targets. No drafter: those that run elsewhere would take memory here for nothing."""
        assert isinstance(ctx, TrialContext)
        self._ctx = ctx
        self._folder = Path(self._spec["folder"])
        self._places = [place_of(scenario, number) for number in range(scenario.drafters)]
        self._inner.setup_targets(scenario, ctx)

    def workers(self) -> list[Worker]:
        """The targets, and for each drafter the thread that feeds its process."""
        pumps = [
            Worker(name, "drafter", str(device), partial(self._feed, number))
            for number, (name, device) in enumerate(self._places)
        ]
        return self._inner.workers() + pumps

    def stop(self) -> None:
        """Unblocks the threads here and ends the drafters' processes."""
        self._stopped.set()
        self._inner.stop()
        for child in self._children:
            child.kill()

    def check(self) -> list[str]:
        """Every item that was taken from a queue is accounted for by the drafter's process."""
        problems = []
        for number in sorted(self._accounted):
            name, counts = self._places[number][0], self._inner.queues[number].counts
            told = self._ctx.trial.tally(name).counts
            total = sum(told.get(outcome, 0) for outcome in OUTCOMES)
            if counts.offered != counts.taken + counts.left or counts.taken != total:
                problems.append(
                    f"{name}: {counts.offered} items were queued, {counts.taken} taken and {counts.left} left; "
                    f"its process accounts for {total}"
                )
        return problems

    # the thread that feeds one process

    def _feed(self, number: int) -> None:
        queue = self._inner.queues[number]
        ours, theirs = socket.socketpair()
        child = None
        try:
            with theirs:
                folder, child = self._start(number, theirs)
            watch = _Watch(self._ctx, child, folder, self._stopped)
            with selectors.DefaultSelector() as selector:
                selector.register(ours, selectors.EVENT_READ)
                while _asked(selector, ours, watch) and _send(ours, _next(queue, selector, watch)):
                    pass
            queue.close()  # before its process has ended: an item made from now on is of no use
            code = _end_of(watch)
            if not self._stopped.is_set():  # else it was killed, and what it did is of no account
                self._merge(number, folder, code)
        except QueueAborted:
            return  # the run is being shut down
        finally:
            ours.close()
            queue.close()
            if child is not None:
                child.kill()  # of no effect on one that has ended
                child.wait()

    def _start(self, number: int, theirs: socket.socket) -> tuple[Path, subprocess.Popen[bytes]]:
        folder = self._folder / f"drafter-{number}"
        folder.mkdir()
        scenario = {axis: value for axis, value in self._spec["scenario"].items() if axis not in SETTINGS}
        extra = {"drafter": number, "fd": theirs.fileno()}
        spec = {**self._spec, "folder": str(folder), "scenario": scenario, "extra": extra}
        path = folder / "spec.json"
        path.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        # In this process group, so that it goes when the trial's is killed.
        child = subprocess.Popen([sys.executable, "-m", "harness.subject", str(path)], pass_fds=[theirs.fileno()])
        self._children.append(child)
        return folder, child

    def _merge(self, number: int, folder: Path, code: int) -> None:
        """The drafter's own account becomes this trial's."""
        name = self._places[number][0]
        path = folder / "result.json"
        if not path.exists():
            for error in errorfile.read_errors(folder):  # what it told of before it died
                started = error.pop(errorfile.CLOCK)
                del error[errorfile.TORCH]
                self._take(error, started - self._ctx.log.start_ns)
            raise RuntimeError(f"the process of {name} ended with {code} and left no result; its output is the trial's")
        document = json.loads(path.read_text(encoding="utf-8"))
        (folder / errorfile.NAME).unlink(missing_ok=True)  # the result has them all
        offset = document["facts"]["clock_start_ns"] - self._ctx.log.start_ns
        if "steps" not in document["facts"]:
            self._unstarted(name, document, offset)
            return
        theirs = document["workers"][name]
        tally = self._ctx.trial.tally(name)
        for field in ("steps_ok", "steps_failed", "tokens", "compiles", "dense_calls", "first_error_step"):
            setattr(tally, field, theirs[field])
        tally.losses = [losses.read(loss) for loss in theirs["losses"]]
        tally.counts.update(theirs["counts"])
        tally.warm.take(theirs)
        tally.facts.update(theirs["facts"])
        tally.steps = [(at + offset, tokens) for at, tokens in document["facts"]["steps"]]
        tally.first_good_ns = tally.steps[0][0] if tally.steps else None
        tally.peaks = document.get("memory", {})
        for error in document["errors"]:
            self._take(error, offset)
        for problem in document["problems"]:
            self._ctx.trial.problems.append((self._ctx.log.now_ns(), problem["label"], problem["text"]))
        if document["outcome"] in ("hang", "deadlock"):
            self._ctx.finding(name, document["outcome"], document["reason"])
        arrived = document["facts"].get("arrived")
        if arrived is not None:  # its drafter came to an end
            self._accounted.append(number)
            if self._inner.queues[number].counts.taken == arrived + 1:  # what it asked for ahead, and did not wait for
                self._ctx.count(name, "unused")

    def _unstarted(self, name: str, document: dict[str, Any], offset: int) -> None:
        """Its set-up failed: in one process, this trial's would have, with the same outcome."""
        label = document["outcome"]
        self._ctx.trial.tally(name).peaks = document.get("memory", {})
        self._ctx.trial.problems.append((offset, label, f"{name}: {document['reason']}"))
        for error in document["errors"]:
            self._take({**error, "label": label}, offset)

    def _take(self, error: dict[str, Any], offset: int) -> None:
        """An error of a drafter's process, which started `offset` ns after this one."""
        at_s = error.pop("at_s")
        self._ctx.trial.keep(ErrorRecord(**error, at_ns=int(at_s * 1e9) + offset))


class _Watch:
    """An eye on one drafter's process, while something is waited for."""

    def __init__(
        self, ctx: TrialContext, child: subprocess.Popen[bytes], folder: Path, stopped: threading.Event
    ) -> None:
        self.child = child
        self._ctx = ctx
        self._folder = folder
        self._stopped = stopped
        self._beat = 0
        self._starts_until = time.monotonic() + START_S

    def look(self) -> None:
        """Its signs of life become this trial's; what cannot end by itself is ended."""
        if self._stopped.is_set() or (self._folder / "hang.json").exists():
            self.child.kill()  # one that hangs has written its result
        try:
            now = (self._folder / "heartbeat").stat().st_mtime_ns
        except FileNotFoundError:
            now = self._beat
            if self.child.poll() is None and time.monotonic() < self._starts_until:
                self._ctx.log.emit("process.starting")
        if now != self._beat:
            self._beat = now
            self._ctx.log.emit("process.alive")


def _asked(selector: selectors.BaseSelector, ours: socket.socket, watch: _Watch) -> bool:
    """Until the drafter asks for an item: True. False when it has ended, well or not."""
    while not selector.select(TICK_S):
        watch.look()
    return _received(ours)


def _received(ours: socket.socket) -> bool:
    try:
        return bool(ours.recv(1))
    except ConnectionResetError:  # it ended without reading all that it was sent
        return False


def _next(queue: ItemQueue, selector: selectors.BaseSelector, watch: _Watch) -> Item | LostItem | None:
    """The item that was asked for. None: there are no more, or nobody waits for it."""
    while True:
        try:
            return queue.get(TICK_S)
        except QueueTimeout:
            watch.look()
            if selector.select(0):  # it asks for nothing before it has its answer: its end was closed
                return None


def _end_of(watch: _Watch) -> int:
    """Waits for the drafter's process; how it ended."""
    while True:
        try:
            return watch.child.wait(TICK_S)
        except subprocess.TimeoutExpired:
            watch.look()


def _send(ours: socket.socket, item: Item | LostItem | None) -> bool:
    """Whether more may be asked for."""
    data = b"" if item is None else frame(item)
    try:
        ours.sendall(len(data).to_bytes(HEADER, "big"))
        if data:
            ours.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return False  # the drafter has ended meanwhile
    return True


class OneDrafter:
    """The workload in a drafter's process: that drafter alone, fed from the socket."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._number = int(spec["extra"]["drafter"])
        self._sock = socket.socket(fileno=int(spec["extra"]["fd"]))

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Builds the drafter, as it is in one process with the others and the targets."""
        assert isinstance(ctx, TrialContext)
        self._ctx = ctx
        on_cuda = place_of(scenario, self._number)[1].type == "cuda"
        self._queue = SocketQueue(self._sock, pin=on_cuda)
        self._drafter = lone_drafter(scenario, ctx, self._number, cast(ItemQueue, self._queue))
        # Weights are drawn in float32: what that took of a GPU is the other processes' to have.
        torch.cuda.empty_cache()

    def workers(self) -> list[Worker]:
        """The one drafter."""
        return [Worker(self._drafter.name, "drafter", str(self._drafter.device), self._run)]

    def stop(self) -> None:
        """Unblocks it."""
        self._queue.abort()

    def _run(self) -> None:
        """What the other side needs for its account is put down: `steps`, also of a drafter that hangs, and `arrived`."""
        name = self._drafter.name
        self._ctx.fact("", "steps", self._ctx.trial.tally(name).steps)
        try:
            self._drafter.run()
        finally:
            self._queue.close()
            if self._queue.unused:
                self._ctx.count(name, "unused", self._queue.unused)
            self._ctx.fact("", "arrived", self._queue.arrived)
