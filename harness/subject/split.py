"""`lock = "process"`: each drafter of the DFlash pipeline in a process of its own.

The trial's process keeps the targets. For each drafter a thread here takes items from its queue and hands them over a
private socket, one at a time; there a fresh interpreter runs the same pipeline with that drafter alone. Nothing of torch's
state is shared, so no lock is needed; what it costs is an import, a compile and a copy of every item for each drafter.
What a drafter's process did (steps, losses, errors) is merged into the trial's account, so that it is compared like any
other strategy.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from harness.core.workload import Context, Scenario, Worker
from harness.pipeline import Pipeline
from harness.pipeline.items import Item, LostItem

from .context import TrialContext
from .record import ErrorRecord

HEADER = 8  # bytes of a frame's length, big-endian; a frame of no bytes says that there are no more items
TICK_S = 0.5
START_S = 180.0  # a drafter's process imports torch and builds its weights before it gives signs of life of its own
SETTINGS = ("lock", "warmup", "schedule")  # axes that a drafter's own process does not have


class SplitPipeline:
    """The workload in the trial's own process."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._inner = Pipeline()
        self._children: list[subprocess.Popen[bytes]] = []

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
        """Builds the pipeline; its drafters are not run here."""
        assert isinstance(ctx, TrialContext)
        self._ctx = ctx
        self._folder = Path(self._spec["folder"])
        self._inner.setup(scenario, ctx)

    def workers(self) -> list[Worker]:
        """The targets, and for each drafter the thread that feeds its process."""
        targets = [worker for worker in self._inner.workers() if worker.role == "target"]
        pumps = [
            Worker(drafter.name, "drafter", str(drafter.device), partial(self._feed, number))
            for number, drafter in enumerate(self._inner.drafters)
        ]
        return targets + pumps

    def stop(self) -> None:
        """Unblocks the threads here and ends the drafters' processes."""
        self._inner.stop()
        for child in self._children:
            child.kill()

    def check(self) -> list[str]:
        """Every item that was taken from a queue is accounted for by the drafter's process."""
        problems = []
        for drafter in self._inner.drafters:
            counts = drafter.queue.counts
            told = self._ctx.trial.tally(drafter.name).counts
            total = sum(told.get(outcome, 0) for outcome in ("consumed", "skipped", "refused", "lost"))
            if counts.offered != counts.taken + counts.left or counts.taken != total:
                problems.append(
                    f"{drafter.name}: {counts.offered} items were queued, {counts.taken} taken and {counts.left} left; "
                    f"its process accounts for {total}"
                )
        return problems

    # the thread that feeds one process

    def _feed(self, number: int) -> None:
        drafter = self._inner.drafters[number]
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                folder, child = self._start(number, theirs)
            with selectors.DefaultSelector() as selector:
                selector.register(ours, selectors.EVENT_READ)
                while self._wait_for(selector, ours, child, folder):
                    item = drafter.queue.get()
                    data = b"" if item is None else frame(item)
                    ours.sendall(len(data).to_bytes(HEADER, "big") + data)
            child.wait()
            self._merge(drafter.name, folder, child.returncode)
        finally:
            ours.close()
            drafter.leave()

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

    def _wait_for(
        self, selector: selectors.BaseSelector, ours: socket.socket, child: subprocess.Popen[bytes], folder: Path
    ) -> bool:
        """Until the drafter asks for an item: True. False when it has ended, well or not."""
        beat = 0
        starts_until = time.monotonic() + START_S
        while not selector.select(TICK_S):
            if (folder / "hang.json").exists():
                child.kill()  # it has written its result; what hangs cannot end by itself
            try:
                now = (folder / "heartbeat").stat().st_mtime_ns
            except FileNotFoundError:
                now = beat
                if child.poll() is None and time.monotonic() < starts_until:
                    self._ctx.log.emit("process.starting")
            if now != beat:
                beat = now
                self._ctx.log.emit("process.alive")  # its signs of life are this trial's
        return bool(ours.recv(1))

    def _merge(self, name: str, folder: Path, code: int) -> None:
        """The drafter's own account becomes this trial's."""
        path = folder / "result.json"
        if not path.exists():
            raise RuntimeError(f"the process of {name} ended with {code} and left no result; its output is the trial's")
        document = json.loads(path.read_text(encoding="utf-8"))
        theirs = document["workers"][name]
        offset = document["facts"]["clock_start_ns"] - self._ctx.log.start_ns
        tally = self._ctx.trial.tally(name)
        for field in ("steps_ok", "steps_failed", "tokens", "compiles", "dense_calls", "losses", "first_error_step"):
            setattr(tally, field, theirs[field])
        tally.counts.update(theirs["counts"])
        tally.warm.take(theirs)
        tally.facts.update(theirs["facts"])
        tally.steps = [(at + offset, tokens) for at, tokens in document["facts"]["steps"]]
        tally.first_good_ns = tally.steps[0][0] if tally.steps else None
        tally.peaks = document.get("memory", {})
        for error in document["errors"]:
            at_s = error.pop("at_s")
            self._ctx.trial.errors.append(ErrorRecord(**error, at_ns=int(at_s * 1e9) + offset))
        for problem in document["problems"]:
            self._ctx.trial.problems.append((self._ctx.log.now_ns(), problem["label"], problem["text"]))
        if document["outcome"] in ("hang", "deadlock"):
            self._ctx.finding(name, document["outcome"], document["reason"])


class OneDrafter:
    """The workload in a drafter's process: the same pipeline, of which one drafter runs, fed from the socket."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._number = int(spec["extra"]["drafter"])
        self._sock = socket.socket(fileno=int(spec["extra"]["fd"]))
        self._inner = Pipeline()

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Builds the whole pipeline, so that weights and seeds are what they are in one process."""
        assert isinstance(ctx, TrialContext)
        self._ctx = ctx
        self._inner.setup(scenario, ctx)
        self._drafter = self._inner.drafters[self._number]
        self._drafter.queue = SocketQueue(self._sock)  # type: ignore[assignment]

    def workers(self) -> list[Worker]:
        """The one drafter."""
        return [Worker(self._drafter.name, "drafter", str(self._drafter.device), self._drafter.run)]

    def stop(self) -> None:
        """Unblocks it."""
        self._sock.close()

    def check(self) -> list[str]:
        """Nothing is amiss; what the other side needs for its account is put down."""
        tally = self._ctx.trial.tally(self._drafter.name)
        self._ctx.fact("", "steps", tally.steps)
        return []


class SocketQueue:
    """The drafter's end: asks for an item when it wants one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get(self) -> Item | LostItem | None:
        """The next item; None when there are no more, or the other side has gone."""
        try:
            self._sock.sendall(b"?")
            size = int.from_bytes(self._exactly(HEADER), "big")
            return unframe(self._exactly(size)) if size else None
        except (BrokenPipeError, ConnectionResetError, EOFError):
            return None

    def poll(self) -> None:
        """Nothing is there before it was asked for."""

    def get_waits(self) -> bool:
        """For the wait-for graph: the other end is in another process, so there is nobody here to wait for."""
        return False

    def close(self) -> None:
        """Nothing more is wanted."""
        self._sock.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._sock.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


def frame(item: Item | LostItem) -> bytes:
    """An item as bytes; a lost one is its index alone."""
    return b"L%d" % item.index if isinstance(item, LostItem) else b"I" + item.to_bytes()


def unframe(data: bytes) -> Item | LostItem:
    """What `frame` made."""
    return LostItem(int(data[1:])) if data[:1] == b"L" else Item.from_bytes(data[1:])

