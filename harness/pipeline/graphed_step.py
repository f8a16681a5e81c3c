"""A drafter's step captured as one CUDA graph: mask, forward, loss and backward, on buffers that stay where they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from harness.pipeline.items import Item

WARM_STEPS = 2
"""Steps that run as they are, and return, before the capture: they compile, load kernels and allocate what stays."""

StepFunction = Callable[[Item, Tensor, Tensor], Tensor]


class GraphedStep:
    """Runs `step(item, anchors, keep)`, which leaves gradients and returns the loss; once WARM_STEPS have returned, as a graph.

    Shapes are those that were captured. `error_mode`: torch's `capture_error_mode`; what other threads may do on `device`
    meanwhile depends on it: under "global" any of their allocations invalidates the capture. In no mode may two captures of
    a process overlap, and nothing here keeps them apart: `torch.cuda.graph` begins with a synchronisation of the whole
    device, which CUDA refuses while another thread captures there, and which breaks that capture too (the hazard
    `capture-invalidated`). One lock around the captures, or around every step, keeps them apart.

    A capture that fails is raised as torch raises it, leaves the thread on the stream it was on, and is the last: each later
    call raises RuntimeError that quotes it. torch's allocator takes a capture that could not begin or end for one that still
    runs, and from then on frees no block of the device that a second stream has used (`record_stream`: all that a `Transfer`
    brings). Steps that went on would eat up the device's memory; those of other drafters there may, and are not told.

    Not safe to call from two threads at once.
    """

    def __init__(
        self, step: StepFunction, parameters: Sequence[nn.Parameter], device: torch.device, error_mode: str
    ) -> None:
        self._step = step
        self._parameters = list(parameters)
        self._device = device
        self._error_mode = error_mode
        self._warm = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._broken = ""  # by what the capture failed; its text only, since a traceback keeps the step's tensors alive

    def __call__(self, item: Item, anchors: Tensor, keep: Tensor) -> Tensor:
        """Gradients of one item, as `Parameter.grad`; returns the loss, whose memory the next call reuses."""
        if self._broken:
            raise RuntimeError(f"this step's capture as a CUDA graph has failed, and is not tried again: {self._broken}")
        if self._warm < WARM_STEPS:
            loss = self._step(item, anchors, keep)
            self._warm += 1
            return loss
        if self._graph is None:
            self._capture(item, anchors, keep)
        assert self._graph is not None
        self._fill(item, anchors, keep)
        self._graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        return self._loss

    def _capture(self, item: Item, anchors: Tensor, keep: Tensor) -> None:
        held = item.mapped(Tensor.clone), anchors.clone(), keep.clone()
        for parameter in self._parameters:
            parameter.grad = None  # so that the gradients are made in the graph's own memory
        with torch.cuda.device(self._device):
            graph = torch.cuda.CUDAGraph()
            before = torch.cuda.current_stream(self._device)
            # torch's own default is one stream of the process, on whichever device was current when it was first wanted.
            stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            try:
                with torch.cuda.graph(graph, stream=stream, capture_error_mode=self._error_mode):
                    loss = self._step(*held).detach()
            except BaseException as error:
                self._broken = f"{type(error).__name__}: {error}"
                raise
            finally:
                torch.cuda.set_stream(before)  # torch does not where a capture could not begin or end
        self._item, self._anchors, self._keep = held
        self._loss = loss
        self._gradients = [parameter.grad for parameter in self._parameters]
        self._graph = graph

    def _fill(self, item: Item, anchors: Tensor, keep: Tensor) -> None:
        """The new item into the buffers. Raises ValueError for other shapes than those captured."""
        for field in dataclasses.fields(item):
            source, target = getattr(item, field.name), getattr(self._item, field.name)
            if isinstance(source, Tensor):
                _copy(source, target, field.name)
        _copy(anchors, self._anchors, "anchors")
        _copy(keep, self._keep, "keep")


def _copy(source: Tensor, target: Tensor, name: str) -> None:
    if source.shape != target.shape:
        raise ValueError(f"{name} has shape {tuple(source.shape)}, but the graph was captured for {tuple(target.shape)}")
    target.copy_(source)
