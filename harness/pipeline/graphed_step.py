"""A drafter's step captured as one CUDA graph: mask, forward, loss and backward, on buffers that stay where they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from harness.pipeline.items import Item

WARM_STEPS = 2
"""Steps that run as they are before the capture: they compile, load kernels and allocate what stays."""

StepFunction = Callable[[Item, Tensor, Tensor], Tensor]


class GraphedStep:
    """Runs `step(item, anchors, keep)`, which leaves gradients and returns the loss; from the third call on, as a graph.

    Shapes are those of the first call. `error_mode`: torch's `capture_error_mode`; what other threads may do on the
    device meanwhile depends on it: under "global" any of their allocations invalidates the capture.

    Not safe to call from two threads at once. Errors of the capture are raised as torch raises them; the next call
    then tries anew.
    """

    def __init__(self, step: StepFunction, parameters: Sequence[nn.Parameter], error_mode: str) -> None:
        self._step = step
        self._parameters = list(parameters)
        self._error_mode = error_mode
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, item: Item, anchors: Tensor, keep: Tensor) -> Tensor:
        """Gradients of one item, as `Parameter.grad`; returns the loss, whose memory the next call reuses."""
        self._calls += 1
        if self._calls <= WARM_STEPS:
            return self._step(item, anchors, keep)
        if self._graph is None:
            self._capture(item, anchors, keep)
        assert self._graph is not None
        self._fill(item, anchors, keep)
        self._graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        return self._loss

    def _capture(self, item: Item, anchors: Tensor, keep: Tensor) -> None:
        self._item = item.mapped(Tensor.clone)
        self._anchors, self._keep = anchors.clone(), keep.clone()
        for parameter in self._parameters:
            parameter.grad = None  # so that the gradients are made in the graph's own memory
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=self._error_mode):
            self._loss = self._step(self._item, self._anchors, self._keep).detach()
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
