"""A workload whose losses drift from process to process, as those of a GPU do. Imported by subjects only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import torch

from harness.core.workload import Context, Scenario, Worker


class Drifting:
    """The process that is the n-th to run it has losses that are off by n × 2 %: its number is the size of a file."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self._ctx, self._steps = ctx, scenario.steps
        fd = os.open(os.environ["DRIFT_FILE"], os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._off = 0.02 * os.fstat(fd).st_size
        os.write(fd, b".")
        os.close(fd)

    def workers(self) -> list[Worker]:
        return [Worker("drafter-0", "drafter", "cpu", self._run)]

    def stop(self) -> None:
        return

    def reference(self, scenario: Scenario) -> None:
        self._run()

    def _run(self) -> None:
        for step in range(self._steps):
            with self._ctx.region("step", "drafter-0"):
                pass
            self._ctx.step("drafter-0", tokens=1, loss=4.0 * (1 + self._off * step))


class Diverging(Drifting):
    """Its threaded run ends at `nan`."""

    def workers(self) -> list[Worker]:
        return [Worker("drafter-0", "drafter", "cpu", self._diverge)]

    def _diverge(self) -> None:
        self._off = float("nan")
        self._run()


class Nudged(Drifting):
    """Tells by its losses what its reference was nudged with."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self._ctx, self._steps, self._off = ctx, scenario.steps, 0.0

    def nudge(self, change: Callable[[Iterable[torch.Tensor]], None]) -> None:
        weights = torch.ones(64)
        for _ in range(2):  # as of two drafters that share them
            change([weights])
        self._off = float((weights == 1 + torch.finfo(weights.dtype).eps).sum())
