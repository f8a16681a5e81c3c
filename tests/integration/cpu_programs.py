"""A small program for CUDA, made to run on the CPU: what its plan orders comes about there; the effect is made up."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch

from harness.core.workload import Context, Scenario
from harness.subject.programs import cublas
from harness.subject.programs.parts import Parts


class _Stream:
    def __init__(self, device: str) -> None:
        assert device == "cpu"

    def synchronize(self) -> None:
        """Nothing is under way."""


class Workspaces(cublas.WorkspacesFreed):
    """Tells of each worker the cores that its thread may run on."""

    def unsupported(self, scenario: Scenario) -> str:
        return ""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self.device, self.backend = "cpu", "eager"
        fakes: dict[str, Any] = {"Stream": _Stream, "stream": lambda _: contextlib.nullcontext()}
        for name, fake in fakes.items():
            setattr(torch.cuda, name, fake)
        cublas.RECORDINGS, cublas.PRODUCTS = 4, 20
        Parts.setup(self, scenario, ctx)

    def step(self, name: str, part: Callable[[], object]) -> bool:
        def told() -> None:
            part()
            self.ctx.fact(name, "cores", sorted(os.sched_getaffinity(0)))
            self.ctx.fact("", "effect", True)  # whatever the order

        return Parts.step(self, name, told)
