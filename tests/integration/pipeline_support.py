"""Running the pipeline in a test: small settings, serial or threaded, and contexts that misbehave on purpose."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from harness.core.scenario import Scenario
from harness.core.settings import PipelineSettings
from harness.core.workload import NullContext
from harness.pipeline import Pipeline
from harness.torch_internals.device_guard import ensure_device_guard
from harness.torch_internals.flex_cpu import flex_on_cpu

WAIT_S = 120.0
SMALL = {"tokens": 48, "anchors": 4, "target_layers": 5, "drafter_layers": 2, "hidden_size": 32, "vocab_size": 264}


@contextmanager
def attention_on_cpu() -> Iterator[None]:
    """Attention with gradients on the CPU, and no compiled code of other tests."""
    torch._dynamo.reset()
    ensure_device_guard()  # or torch 2.11 crashes in the second thread that compiles
    with flex_on_cpu() as availability:
        assert availability.ok, availability.reason
        yield
    torch._dynamo.reset()


@dataclass
class Faulty(NullContext):
    """Raises in the given stretches: {(worker, region): numbers of its stays, from 0}; "after backward" raises at the
    end of the region."""

    plan: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    entered: dict[tuple[str, str], int] = field(default_factory=dict)

    @contextmanager
    def region(self, name: str, worker: str, key: object = None) -> Iterator[None]:
        number = self.entered[worker, name] = self.entered.get((worker, name), -1) + 1
        with super().region(name, worker, key):
            if number in self.plan.get((worker, name), ()):
                raise RuntimeError(f"planted in {name} of {worker}")
            yield
            if number in self.plan.get((worker, f"after {name}"), ()):
                raise RuntimeError(f"planted after {name} of {worker}")


def context(plan: dict[tuple[str, str], set[int]] | None = None, **settings: object) -> Faulty:
    return Faulty(settings={**PipelineSettings().to_dict(), **SMALL, **settings}, plan=plan or {})


def scenario(**axes: str | int) -> Scenario:
    return Scenario().replace(**{"drafters": 2, "steps": 3, **axes})


@dataclass
class Run:
    """A run that has ended."""

    pipeline: Pipeline
    ctx: Faulty
    problems: list[str]

    def losses(self) -> dict[str, list[float | None]]:
        """Of each drafter, in the order of its steps."""
        steps = self.ctx.steps.items()
        return {worker: [loss for _, loss in done] for worker, done in sorted(steps) if worker.startswith("drafter")}

    def items(self, drafter: int) -> dict[str, int]:
        """Where the drafter's items went."""
        return self.ctx.facts[f"drafter-{drafter}"]["items"]  # type: ignore[return-value]


def serial(ctx: Faulty, *, warm_up: str = "", **axes: str | int) -> Run:
    """The run on this thread."""
    pipeline = Pipeline()
    pipeline.setup(scenario(**axes), ctx)
    if warm_up:
        pipeline.warm_up(warm_up)
    pipeline.reference(scenario(**axes))
    return Run(pipeline, ctx, pipeline.check())


def threaded(ctx: Faulty, **axes: str | int) -> Run:
    """The run on threads; fails if any of them does not end, or ends by an exception.

    All is compiled beforehand: what happens when threads compile is the subject of other tests.
    """
    pipeline = Pipeline()
    pipeline.setup(scenario(**axes), ctx)
    pipeline.warm_up("main_grad")
    run_workers(pipeline)
    return Run(pipeline, ctx, pipeline.check())


def run_workers(pipeline: Pipeline) -> None:
    escaped: list[BaseException] = []

    def body(run: object) -> None:
        try:
            run()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - reported below, on the test's own thread
            escaped.append(error)

    threads = [threading.Thread(target=body, args=(w.run,), name=w.name, daemon=True) for w in pipeline.workers()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    waiting = [thread.name for thread in threads if thread.is_alive()]
    if waiting:
        pipeline.stop()
    assert not waiting, f"still running: {waiting}"
    assert not escaped, escaped
