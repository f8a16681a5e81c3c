"""A small program in which matrix products meet another thread's recording of CUDA graphs. It needs a CUDA device."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from .parts import CudaParts

RECORDINGS = 400
SHORTEST = 8
"""The length that is compiled with; each recording has a greater one of its own."""

MULTIPLIERS = ("multiplier", "multiplier-2", "multiplier-3")
BEGUN = 8
"""Products after which one is said to multiply."""
PRODUCTS = 2000
"""At least, by each; on until nobody records."""

_ROWS, _INNER, _COLUMNS = (16, 32, 48, 64, 96, 128), (2048, 4096, 8192), (16, 64, 128, 256)


def twice(x: Tensor) -> Tensor:
    """What is compiled, and recorded for each length."""
    return x * 2


class WorkspacesFreed(CudaParts):
    """`recorder` records one CUDA graph after another (`mode="reduce-overhead"`); the others multiply, each on its stream.

    The products have few results and long sums: cuBLAS splits the sums and keeps the parts in its workspace. Those who multiply
    share one core, to lose it between the choice of a workspace and the launch of a kernel, where a recording may come in
    between. That was not run on a GPU yet. Before, on any core, 18 of 20 trials on an H200 with 16 cores failed beside ten of
    the pipeline, after 3 to 260 recordings, and 1 of 13 beside four of their own kind.
    """

    def build(self) -> None:
        """A function whose every length has a graph of its own, and who may run where."""
        cores = sorted(os.sched_getaffinity(0))
        self._core = cores[os.getpid() % len(cores)]  # another in most trials that run at the same time
        self._others = set(cores) - {self._core}
        self._compiled = torch.compile(twice, backend=self.backend, mode="reduce-overhead", dynamic=True)
        self._ended = threading.Event()

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One records, three multiply."""
        return {"recorder": self._record, **{name: partial(self._multiply, name) for name in MULTIPLIERS}}

    def stop(self) -> None:
        """Whoever multiplies stops."""
        self._ended.set()

    @torch.no_grad()
    def _record(self) -> None:
        if self._others:
            os.sched_setaffinity(0, self._others)  # 0: the thread that asks, on Linux
        try:
            x = torch.ones(SHORTEST + RECORDINGS, device=self.device)
            self._compiled(x[:SHORTEST])  # to compile takes a while, in which nothing is recorded
            self.ctx.mark("recorder", "recording")
            for length in range(SHORTEST + 1, SHORTEST + RECORDINGS + 1):
                for _ in range(2):  # the first time warms up, the second is recorded
                    self._compiled(x[:length])
        finally:
            self._ended.set()

    @torch.no_grad()
    def _multiply(self, name: str) -> None:
        os.sched_setaffinity(0, {self._core})
        self.ctx.mark(name, "begin")
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            a = torch.ones(max(_ROWS), max(_INNER), dtype=torch.bfloat16, device=self.device)
            b = torch.ones(max(_INNER), max(_COLUMNS), dtype=torch.bfloat16, device=self.device)
            sizes = itertools.cycle(itertools.product(_ROWS, _INNER, _COLUMNS))
            for done, (rows, inner, columns) in enumerate(sizes):
                if done >= PRODUCTS and self._ended.is_set():
                    break
                if done == BEGUN:
                    self.ctx.mark(name, "multiplying")
                    self.ctx.mark(name, "goes_on")  # a step of a plan has happened when more is heard of its thread
                a[:rows, :inner] @ b[:inner, :columns]
                if done % 64 == 0:
                    stream.synchronize()  # or they queue up without end
            stream.synchronize()
