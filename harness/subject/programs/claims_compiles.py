"""Small programs that count who compiles what: beliefs about warm-ups and caches put to the test. All on the CPU."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from harness.core.workload import Worker

from .parts import Parts

WAIT_S = 60.0
CALLERS = 8
MAIN = "main"


def double(x: Tensor) -> Tensor:
    """What is compiled."""
    return x * 2


class Counted(Parts):
    """One compiled function, static shapes. Facts: `graphs`, how many graphs each phase compiled, by what `phase` says."""

    def build(self) -> None:
        """The backend runs the graph as it is; what matters is how often it is asked."""
        self._graphs: Counter[str] = Counter()
        self._compiled = torch.compile(double, backend=self._backend, dynamic=False)
        self._phase = threading.local()

    def phase(self, name: str) -> None:
        """What this thread compiles from now on counts as `name`."""
        self._phase.name = name

    def _backend(self, graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self._graphs[getattr(self._phase, "name", MAIN)] += 1
        forward: Callable[..., Any] = graph.forward
        return forward

    def train(self, length: int = 4) -> None:
        """Forward and backward of one item."""
        x = torch.ones(length, requires_grad=True)
        loss: Tensor = self._compiled(x).sum()
        loss.backward()  # type: ignore[no-untyped-call]

    def check(self) -> list[str]:
        """Tells what was counted."""
        self.ctx.fact("", "graphs", dict(self._graphs))
        return []


class Shared(Counted):
    """`first` trains once; then eight others do the same, all at once, with `shapes = "per_drafter"` each on a length of its
    own. Phases: `first`, `others`."""

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One and eight."""
        self._warm = threading.Event()
        return {"first": self._first, **{f"caller-{i}": partial(self._other, i) for i in range(CALLERS)}}

    def _first(self) -> None:
        self.phase("first")
        self.train()
        self._warm.set()

    def _other(self, number: int) -> None:
        self.phase("others")
        with self.ctx.waiting("", "the first call", "first"):
            if not self._warm.wait(WAIT_S):
                raise TimeoutError("the first call did not end")
        self.train(5 + number if self.scenario.shapes == "per_drafter" else 4)

    def stop(self) -> None:
        """Nobody waits for a first call that failed."""
        self._warm.set()


class Warmed(Counted):
    """The main thread warms up as the axis `warmup` says (with or without gradient), then two workers train once.

    Phases: `main`, `workers`.
    """

    def warm_up(self, kind: str) -> None:
        """`main_grad` trains, `main_no_grad` only runs forward; on the thread that calls."""
        self.phase(MAIN)
        if kind == "main_no_grad":
            with torch.no_grad():
                self._compiled(torch.ones(4))
        else:
            self.train()

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Two alike."""
        return {f"drafter-{i}": self._work for i in range(2)}

    def _work(self) -> None:
        self.phase("workers")
        self.train()


class Later(Counted):
    """Two workers of three steps each; with `shapes = "variable"` each step has a length of its own.

    Phases: `first step`, `later steps`.
    """

    def workers(self) -> list[Worker]:
        """Both alike."""
        return [Worker(f"drafter-{i}", "drafter", self.device, partial(self._run, i)) for i in range(2)]

    def _run(self, number: int) -> None:
        for step in range(3):
            self.phase("later steps" if step else "first step")
            length = 4 + step if self.scenario.shapes == "variable" else 4
            if not self.step(f"drafter-{number}", partial(self.train, length)):
                return
