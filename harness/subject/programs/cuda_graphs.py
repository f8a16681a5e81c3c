"""Small programs in which CUDA graphs, or the autotuner of a kernel, meet a second thread. All need a CUDA device."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harness.core.workload import Scenario, Worker

from .parts import CudaParts

CALLS = 3
"""Calls until a function's CUDA graph is replayed: one warms up, one records."""

_RECORDED = "harness_programs::recorded"


def double(x: Tensor) -> Tensor:
    """What is compiled."""
    return x * 2


def triple(x: Tensor) -> Tensor:
    """What is compiled by the other thread."""
    return x * 3


class TwoGraphs(CudaParts):
    """`first` and `second` call a function each, compiled with `mode="reduce-overhead"`. With the setting `threads = "one"`
    a single thread, `first`, does both."""

    def build(self) -> None:
        """Compiles at the first call, in the thread that makes it."""
        functions = {"first": double, "second": triple}
        self._compiled = {
            name: torch.compile(function, backend=self.backend, mode="reduce-overhead")
            for name, function in functions.items()
        }

    def workers(self) -> list[Worker]:
        """One a function, or one for both."""
        names = list(self._compiled)
        shares = [names] if self.ctx.settings.get("threads") == "one" else [[name] for name in names]
        return [Worker(share[0], share[0], self.device, partial(self._run, share)) for share in shares]

    def _run(self, share: list[str]) -> None:
        for name in share:
            if not self.step(share[0], partial(self._call, name)):
                return

    @torch.no_grad()
    def _call(self, name: str) -> None:
        for _ in range(CALLS):
            self._compiled[name](torch.ones(16, device=self.device))
        torch.cuda.synchronize()


class OnePool(CudaParts):
    """`recorder` and `caller` call one function compiled with `mode="reduce-overhead"`. `recorder` marks `recording` and
    `recorded` inside each run of the function that is not a replay: its second is the capture of the graph."""

    def build(self) -> None:
        """The function has an operator in it that marks, and that a graph captures like any other."""
        torch.library.custom_op(_RECORDED, self._in_graph, mutates_args=(), schema="(Tensor x) -> Tensor")
        torch.library.register_fake(_RECORDED, lambda x: torch.empty_like(x))
        operator: Callable[[Tensor], Tensor] = torch.ops.harness_programs.recorded

        def function(x: Tensor) -> Tensor:
            return operator(x * 2) * 2

        self._compiled = torch.compile(function, backend=self.backend, mode="reduce-overhead")

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Two and one calls."""
        return {"recorder": self._record, "caller": self._call}

    def _in_graph(self, x: Tensor) -> Tensor:
        recorder = threading.current_thread().name == "recorder"
        if recorder:
            self.ctx.mark("recorder", "recording")
        y = x.clone()
        if recorder:
            self.ctx.mark("recorder", "recorded")
        return y

    @torch.no_grad()
    def _record(self) -> None:
        for _ in range(CALLS):
            y = self._compiled(torch.ones(16, device=self.device))
        self._check(y)

    @torch.no_grad()
    def _call(self) -> None:
        self.ctx.mark("caller", "begin")
        self._check(self._compiled(torch.ones(16, device=self.device)))

    def _check(self, y: Tensor) -> None:
        """Reads the result. Raises ValueError: it is another than 4."""
        values = y.cpu()
        if not torch.equal(values, torch.full((16,), 4.0)):
            raise ValueError(f"1 * 2 * 2 is {values[0].item()} in a CUDA graph")


class Overwritten(CudaParts):
    """`reader` keeps the result of a function compiled with `mode="reduce-overhead"` for a while; `caller` calls it."""

    def build(self) -> None:
        """One function, whose graphs have one memory pool."""
        self._compiled = torch.compile(double, backend=self.backend, mode="reduce-overhead")

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Warm, replayed and kept; one more replay."""
        return {"reader": self._read, "caller": self._call}

    @torch.no_grad()
    def _read(self) -> None:
        for _ in range(CALLS):
            y = self._compiled(torch.ones(16, device=self.device))
        self.ctx.mark("reader", "has")
        self.ctx.mark("reader", "reads")
        y.sum().item()
        self.ctx.mark("reader", "has_read")

    @torch.no_grad()
    def _call(self) -> None:
        self.ctx.mark("caller", "begin")
        self._compiled(torch.full((16,), 2.0, device=self.device))
        torch.cuda.synchronize()


class GlobalCapture(CudaParts):
    """`capturer` captures a graph by hand, in the default error mode, which is for all threads; `worker` synchronises."""

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One capture, one synchronisation."""
        return {"capturer": self._capture, "worker": self._work}

    def _capture(self) -> None:
        x = torch.ones(16, device=self.device)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="global"):
            y = x * 2
            self.ctx.mark("capturer", "capturing")
            self.ctx.mark("capturer", "ending")
            y = y + 1
        graph.replay()
        torch.cuda.synchronize()

    def _work(self) -> None:
        self.ctx.mark("worker", "begin")
        torch.cuda.synchronize()


class FirstLaunch(CudaParts):
    """`first` and `second` launch one Triton kernel that is autotuned at its first launch."""

    def unsupported(self, scenario: Scenario) -> str:
        """As `CudaParts`, and Triton must be there."""
        reason = super().unsupported(scenario)
        return reason or ("" if importlib.util.find_spec("triton") else "this program needs Triton, and there is none here")

    def build(self) -> None:
        """The kernel, with two configurations to choose from; the hook is called at each launch of the first one."""
        global tl
        triton: Any = importlib.import_module("triton")
        tl = importlib.import_module("triton.language")
        configs = [
            triton.Config({"BLOCK": 64}, num_warps=1, pre_hook=self._benchmarking),
            triton.Config({"BLOCK": 128}, num_warps=1),
        ]
        self._kernel: Any = triton.autotune(configs=configs, key=["n"])(triton.jit(_double_kernel))
        self._said = False

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """A launch each."""
        return {"first": self._launch, "second": self._launch_second}

    def _benchmarking(self, _arguments: Mapping[str, Any]) -> None:
        if threading.current_thread().name == "first" and not self._said:
            self._said = True
            self.ctx.mark("first", "benchmarking")
            self.ctx.mark("first", "goes_on")

    def _launch_second(self) -> None:
        self.ctx.mark("second", "begin")
        self._launch()

    def _launch(self) -> None:
        x = torch.ones(256, device=self.device)
        y = torch.empty_like(x)
        self._kernel[lambda meta: (256 // meta["BLOCK"],)](x, y, 256)
        torch.cuda.synchronize()


tl: Any = None
"""`triton.language`, once `FirstLaunch` is built: the kernel looks it up here."""


def _double_kernel(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
