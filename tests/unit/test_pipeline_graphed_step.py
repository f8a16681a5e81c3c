"""The capture of a step without a device: whose stream it uses, and what is left when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.pipeline.graphed_step import WARM_STEPS, GraphedStep
from harness.pipeline.items import Item

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")


@dataclass(eq=False)
class Stream:
    device: torch.device


class Graph:
    """A replay says so in `cuda.replayed`."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda

    def replay(self) -> None:
        self.cuda.replayed.append(self)


class Cuda:
    """Two devices, as `torch.cuda` shows them to one thread. `fails`: the call of a capture that raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = FIRST
        self.streams = {device: Stream(device) for device in (FIRST, SECOND)}
        self.default_capture_stream: Stream | None = None  # of the process, as torch has it
        self.captured_on: list[tuple[Stream, torch.device, str]] = []
        self.replayed: list[Graph] = []
        self.fails = ""
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(self))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device=None: Stream(self.now if device is None else device))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.streams[device or self.now])
        for name in ("device", "graph", "set_stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))

    def state(self) -> tuple[torch.device, dict[torch.device, Stream]]:
        return self.now, dict(self.streams)

    def set_stream(self, stream: Stream) -> None:
        self.now = stream.device
        self.streams[stream.device] = stream

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.now = self.now, device
        try:
            yield
        finally:
            self.now = before

    @contextmanager
    def graph(self, graph: Graph, stream: Stream | None = None, capture_error_mode: str = "global") -> Iterator[None]:
        """In torch's order: it is on the stream before the capture begins, and leaves it when that has ended well."""
        del graph
        if stream is None:
            self.default_capture_stream = stream = self.default_capture_stream or Stream(self.now)
        self.maybe_fail("synchronize")
        before, there = self.now, self.streams[stream.device]
        self.set_stream(stream)
        self.maybe_fail("capture_begin")
        self.captured_on.append((stream, self.now, capture_error_mode))
        try:
            yield
        finally:
            self.maybe_fail("capture_end")
            self.set_stream(there)
            self.now = before

    def maybe_fail(self, call: str) -> None:
        if self.fails == call:
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({call})")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    return Cuda(monkeypatch)


class Step:
    """Raises at the calls whose numbers are in `bad`, from 1."""

    def __init__(self, *bad: int) -> None:
        self.model = nn.Linear(4, 1)
        self.bad = bad
        self.runs = 0

    def __call__(self, given: Item, anchors: Tensor, keep: Tensor) -> Tensor:
        self.runs += 1
        if self.runs in self.bad:
            raise ValueError(f"run {self.runs} is bad")
        loss = self.model(given.features).square().mean()
        loss.backward()
        return loss

    def graphed(self, device: torch.device = FIRST) -> GraphedStep:
        return GraphedStep(self, list(self.model.parameters()), device, "thread_local")


def call(graphed: GraphedStep) -> Tensor:
    some = torch.ones(1, 3, dtype=torch.int64)
    item = Item(0, torch.ones(1, 3, 4), torch.ones(1, 3, 4), some, some.bool(), some, some, ((3,),), 3)
    return graphed(item, some, some.bool())


def test_each_step_captures_on_a_stream_of_its_own_on_its_own_device(cuda: Cuda) -> None:
    before = cuda.state()
    for device in (FIRST, SECOND, SECOND):
        graphed = Step().graphed(device)
        for _ in range(WARM_STEPS + 1):
            call(graphed)
        stream, current, mode = cuda.captured_on[-1]
        assert (stream.device, current, mode) == (device, device, "thread_local")
    assert len({id(stream) for stream, *_ in cuda.captured_on}) == 3
    assert cuda.default_capture_stream is None
    assert cuda.state() == before


def test_warm_steps_that_raised_do_not_count(cuda: Cuda) -> None:
    step = Step(1, 2)
    graphed = step.graphed()
    for _ in step.bad:
        with pytest.raises(ValueError, match="is bad"):
            call(graphed)
    for _ in range(WARM_STEPS):
        call(graphed)
    assert not cuda.captured_on
    call(graphed)
    call(graphed)
    assert (len(cuda.captured_on), len(cuda.replayed), step.runs) == (1, 2, len(step.bad) + WARM_STEPS + 1)


@pytest.mark.parametrize("fails", ["synchronize", "capture_begin", "capture_end", "step"])
@pytest.mark.parametrize("device", [FIRST, SECOND])
def test_a_capture_that_fails_leaves_the_thread_where_it_was_and_is_not_tried_again(
    cuda: Cuda, fails: str, device: torch.device
) -> None:
    step = Step(*([WARM_STEPS + 1] if fails == "step" else []))
    graphed = step.graphed(device)
    for _ in range(WARM_STEPS):
        call(graphed)
    before = cuda.state()
    cuda.fails = fails
    with pytest.raises((RuntimeError, ValueError)) as first:
        call(graphed)
    assert cuda.state() == before
    runs, cuda.fails = step.runs, ""
    with pytest.raises(RuntimeError, match="not tried again") as second:
        call(graphed)
    assert str(first.value) in str(second.value)
    assert (step.runs, cuda.replayed) == (runs, [])


def test_the_failure_that_is_quoted_keeps_none_of_the_steps_tensors(cuda: Cuda) -> None:
    graphed = Step(WARM_STEPS + 1).graphed()
    for _ in range(WARM_STEPS):
        call(graphed)
    with pytest.raises(ValueError, match="is bad"):
        call(graphed)
    kept: list[Any] = [value for value in vars(graphed).values() if isinstance(value, BaseException | Tensor | Item)]
    assert not kept
