"""A workload whose drafters take their steps without doing anything: the cost of a trial by itself."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from harness.core.workload import Context, Scenario, Worker


class Nothing:
    """`drafters` workers, `steps` empty steps each; never touches torch."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Remember what to do."""
        self._scenario = scenario
        self._ctx = ctx

    def workers(self) -> list[Worker]:
        """One a drafter."""
        names = [f"drafter-{index}" for index in range(self._scenario.drafters)]
        return [Worker(name, "drafter", "cpu", partial(self._run, name)) for name in names]

    def stop(self) -> None:
        """Nothing waits."""

    def _run(self, name: str) -> None:
        region = self._ctx.region
        for _ in range(self._scenario.steps):
            with region("step", name):  # all regions, so that every lock strategy has something to hold
                for inner in ("mask", "forward", "loss", "backward"):
                    with region(inner, name), region("attention", name) if inner == "forward" else nullcontext():
                        pass
            self._ctx.step(name, tokens=1, loss=0.0)
