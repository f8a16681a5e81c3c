"""A workload whose drafters take their steps without doing anything: the cost of a trial by itself."""

from __future__ import annotations

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
        for _ in range(self._scenario.steps):
            with self._ctx.region("step", name):
                pass
            self._ctx.step(name, tokens=1, loss=0.0)
