"""Small workloads that call torch, each for one thing that a probe must see. Imported by subjects only."""

from __future__ import annotations

import threading

import torch
from torch import nn

from harness.core.workload import Context, Scenario, Worker

LIMIT_S = 60


class FxCollision:
    """drafter-0 is inside `symbolic_trace`, in its region `mask`, when drafter-1 calls a warm compiled function."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self.ctx = ctx
        self.inside = threading.Event()
        self.called = threading.Event()
        self.compiled = torch.compile(lambda x: x.sin() + 1, backend="aot_eager")

    def workers(self) -> list[Worker]:
        return [
            Worker("drafter-0", "drafter", "cpu", self.trace),
            Worker("drafter-1", "drafter", "cpu", self.call),
        ]

    def stop(self) -> None:
        self.inside.set()
        self.called.set()

    def trace(self) -> None:
        workload = self

        class Waits(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                workload.inside.set()
                workload.called.wait(LIMIT_S)
                return x + 1

        with self.ctx.region("step", "drafter-0"), self.ctx.region("mask", "drafter-0"):
            torch.fx.symbolic_trace(Waits())
        self.ctx.step("drafter-0", tokens=1, loss=None)

    def call(self) -> None:
        self.inside.wait(LIMIT_S)
        try:
            with self.ctx.region("step", "drafter-1"), self.ctx.region("forward", "drafter-1"):
                self.compiled(torch.zeros(2))
            self.ctx.step("drafter-1", tokens=1, loss=None)
        except RuntimeError as error:
            self.ctx.step_failed("drafter-1", error)
        finally:
            self.called.set()


class NoGradient:
    """A step that leaves a parameter without gradient."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self.ctx = ctx

    def workers(self) -> list[Worker]:
        return [Worker("drafter-0", "drafter", "cpu", self.run)]

    def stop(self) -> None:
        pass

    def run(self) -> None:
        self.ctx.gradients("drafter-0", ["layers.0.self_attn.k_proj.weight"])
        self.ctx.step("drafter-0", tokens=1, loss=1.0)
