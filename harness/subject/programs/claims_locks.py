"""Two drafters under a lock strategy: is what the lock covers all that can trace? All on the CPU."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from harness.core.workload import Worker

from .parts import Parts


def square(x: Tensor) -> Tensor:
    """What inductor lowers: its backward adds two matrix products, for which inductor traces a replacement anew."""
    return x @ x


class Drafters(Parts):
    """Two drafters, two steps each, of one function compiled by inductor with static shapes: equal ones, or with
    `shapes = "per_drafter"` each its own. Regions as in the pipeline; the first backward lowers the backward graph."""

    def build(self) -> None:
        """Compiles at the first call."""
        self._compiled = torch.compile(square, backend="inductor", dynamic=False)

    def workers(self) -> list[Worker]:
        """Either can be the one that is warm first."""
        return [Worker(f"drafter-{i}", "drafter", self.device, partial(self._train, i)) for i in range(2)]

    def _train(self, number: int) -> None:
        size = 4 + number if self.scenario.shapes == "per_drafter" else 4
        x = torch.ones(size, size, requires_grad=True)
        name = f"drafter-{number}"
        for _ in range(2):
            if not self.step(name, partial(self._step, name, x)):
                return

    def _step(self, name: str, x: Tensor) -> None:
        with self.ctx.region("mask", name):
            pass  # where the lock of `first_step` begins
        with self.ctx.region("forward", name), self.ctx.region("attention", name):
            y = self._compiled(x)
        with self.ctx.region("loss", name):
            loss = y.sum()
        with self.ctx.region("backward", name):
            loss.backward()  # type: ignore[no-untyped-call]
