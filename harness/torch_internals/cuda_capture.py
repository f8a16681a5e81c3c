"""CUDA graphs that are captured by hand (`torch.cuda.graph`, `CUDAGraph.capture_begin`).

No private name is touched: two methods of `torch.cuda.CUDAGraph` are wrapped. Verified on torch 2.11, 2.13 and 2.14.1; on
a build without CUDA the class is there and is never used. CUDA-graph trees are reported by `compiles`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet
from harness.torch_internals.passing import PassingSink


class CudaCapture:
    """Reports `cudagraph.record.enter` before a capture begins and `cudagraph.record.exit` after it has ended."""

    name = "cuda_capture"

    def __init__(self) -> None:
        self._patches = Patches()
        self._passing: Callable[..., None] = nothing

    def install(self, sink: PassingSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        graph: Any = getattr(torch.cuda, "CUDAGraph", None)
        if not hasattr(graph, "capture_begin") or not hasattr(graph, "capture_end"):
            return missing("torch.cuda", "CUDAGraph.capture_begin")
        begin: Callable[..., Any] = graph.capture_begin
        end: Callable[..., Any] = graph.capture_end

        @functools.wraps(begin)
        def capture_begin(this: Any, *args: Any, **kwargs: Any) -> Any:
            self._passing("cudagraph.record.enter", "capture")
            return begin(this, *args, **kwargs)

        @functools.wraps(end)
        def capture_end(this: Any) -> Any:
            try:
                return end(this)
            finally:
                self._passing("cudagraph.record.exit", "capture")

        self._passing = quiet(sink.passing)
        self._patches.set(graph, "capture_begin", hide(capture_begin))
        self._patches.set(graph, "capture_end", hide(capture_end))
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._passing = nothing
