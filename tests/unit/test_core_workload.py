"""The workload protocol, and the context that stands in for the harness."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial

import pytest

from harness.core.settings import PipelineSettings
from harness.core.workload import (
    Checks,
    Context,
    HasReference,
    NullContext,
    Scenario,
    WarmsUp,
    Worker,
    Workload,
)


class Counting:
    """Two workers, three steps each: the smallest workload."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self.steps, self.ctx = 3, ctx

    def workers(self) -> list[Worker]:
        names = ("drafter-0", "drafter-1")
        return [Worker(name, "drafter", "cpu", partial(self.train, name)) for name in names]

    def train(self, name: str) -> None:
        for number in range(self.steps):
            with self.ctx.region("step", name, key=("code", number)), self.ctx.region("forward", name):
                self.ctx.step(name, tokens=8, loss=1.0 / (number + 1))
            self.ctx.count(name, "skipped")

    def stop(self) -> None:
        self.steps = 0

    def check(self) -> list[str]:
        return []


def test_a_workload_runs_on_threads_against_the_null_context() -> None:
    workload: Workload = Counting()
    ctx = NullContext()
    workload.setup(Scenario(), ctx)
    threads = [threading.Thread(target=worker.run, name=worker.name) for worker in workload.workers()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert ctx.steps == {name: [(8, 1.0), (8, 0.5), (8, 1.0 / 3)] for name in ("drafter-0", "drafter-1")}
    assert ctx.counts == {name: Counter(skipped=3) for name in ("drafter-0", "drafter-1")}
    of_one = [(what, region, key) for what, region, worker, key in ctx.regions if worker == "drafter-0"][:4]
    assert of_one == [
        ("enter", "step", ("code", 0)),
        ("enter", "forward", None),
        ("exit", "forward", None),
        ("exit", "step", ("code", 0)),
    ]


def test_optional_parts_are_told_apart() -> None:
    workload = Counting()
    assert isinstance(workload, Checks)
    assert not isinstance(workload, WarmsUp)
    assert not isinstance(workload, HasReference)


def test_the_null_context_keeps_failures_gradients_and_facts() -> None:
    ctx: NullContext = NullContext()
    error = ValueError("no")
    with pytest.raises(ValueError, match="no"), ctx.region("backward", "drafter-0"):
        raise error
    ctx.step_failed("drafter-0", error)
    ctx.gradients("drafter-0", ["fc.weight"])
    ctx.gradients("drafter-0", [])
    ctx.count("drafter-0", "refused", 2)
    ctx.fact("drafter-0", "parameters", 7)
    assert [entry[:2] for entry in ctx.regions] == [("enter", "backward"), ("exit", "backward")]
    assert ctx.failures == [("drafter-0", error)]
    assert ctx.missing_gradients == {"drafter-0": [["fc.weight"], []]}
    assert ctx.counts == {"drafter-0": Counter(refused=2)}
    assert ctx.facts == {"drafter-0": {"parameters": 7}}


def test_settings_are_those_of_the_pipeline_unless_given() -> None:
    assert NullContext().settings == PipelineSettings().to_dict()
    assert NullContext(settings={"block_size": 8}).settings["block_size"] == 8
