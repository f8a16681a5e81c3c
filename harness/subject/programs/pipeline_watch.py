"""The DFlash pipeline with a counting backend: for hazards that no outcome of a trial tells of. CPU."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from harness.core.workload import Context, Scenario
from harness.pipeline import Pipeline
from harness.torch_internals.backends import register_watched_backend

BACKEND = "counted_aot_eager"


class Watched(Pipeline):
    """As `Pipeline`, compiled by `aot_eager`. Facts of the trial as a whole:

    graphs                 how many, by the thread that gave them to the backend
    compiled_in_workers    any drafter did
    compiled_by_two        more than one drafter did
    optimizer_saw_compile  an optimizer step found is_compiling() True: none of them is compiled
    """

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Registers the backend and a hook, and builds the pipeline."""
        self._graphs: dict[str, int] = {}
        self._saw_compile = False
        self._told = ctx
        self._main = threading.current_thread()
        register_watched_backend(BACKEND, "aot_eager", self._note_graph)
        register_optimizer_step_pre_hook(self._before_step)
        super().setup(scenario.replace(backend=BACKEND), ctx)

    def _note_graph(self) -> None:
        name = threading.current_thread().name
        self._graphs[name] = self._graphs.get(name, 0) + 1

    def _before_step(self, *_: Any) -> None:
        self._saw_compile |= torch.compiler.is_compiling()

    def check(self) -> list[str]:
        """Tells the facts."""
        workers = {name: count for name, count in self._graphs.items() if name != self._main.name}
        self._told.fact("", "graphs", dict(self._graphs))
        self._told.fact("", "compiled_in_workers", bool(workers))
        self._told.fact("", "compiled_by_two", len(workers) > 1)
        self._told.fact("", "optimizer_saw_compile", self._saw_compile)
        return super().check()


class SharedGenerator(Pipeline):
    """As `Pipeline`, but all drafters draw their anchors from torch's process-wide generator, as code does that names none.

    Each drafter looks itself whether it draws twice from one state of the generator: outcome `state_leak`.
    """

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Seeds it, and gives it to the drafters."""
        super().setup(scenario, ctx)
        torch.manual_seed(scenario.seed)
        for drafter in self.drafters:
            drafter._anchor_generator = torch.default_generator
