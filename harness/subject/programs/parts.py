"""What the small programs have in common: a few workers that each do one thing, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch

from harness.core.axes import HOSTED, INDUCTOR_EAGER
from harness.core.workload import Context, Scenario, Worker

from .tree_references import take_references


class Parts:
    """A workload made of parts: name of a worker → what it does in one step. A subclass gives `parts`, perhaps `build`.

    A part that raises is a failed step of its worker, and the others go on. The name of a worker is its role too.
    """

    device = "cpu"

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Remember the trial, and build."""
        self.scenario, self.ctx = scenario, ctx
        self.build()

    def build(self) -> None:
        """What the workers share; compiles nothing."""

    def parts(self) -> Mapping[str, Callable[[], object]]:
        """By worker."""
        raise NotImplementedError

    def workers(self) -> list[Worker]:
        """One a part."""
        return [Worker(name, name, self.device, partial(self.run, name, part)) for name, part in self.parts().items()]

    def stop(self) -> None:
        """Nothing waits."""

    def run(self, name: str, part: Callable[[], object]) -> None:
        """All that worker `name` does."""
        self.step(name, part)

    def step(self, name: str, part: Callable[[], object]) -> bool:
        """One step of worker `name`; whether it went well."""
        try:
            with self.ctx.region("step", name):
                part()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is what the program is there to show
            self.ctx.step_failed(name, error)
            return False
        self.ctx.step(name, tokens=1, loss=None)
        return True


class EngineParts(Parts):
    """Parts that need a device for which autograd has a thread: the first of the axis `devices`, CUDA or `hosted:0`."""

    def unsupported(self, scenario: Scenario) -> str:
        """Why it cannot run here; "" when it can."""
        if scenario.devices == "cpu":
            return f"devices=cpu: this program needs a device that autograd has a thread for, {HOSTED} or CUDA"
        if scenario.devices != HOSTED and not torch.cuda.is_available():
            return f"devices={scenario.devices}: there is no CUDA device here"
        return ""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """As `Parts`, with the device at hand."""
        self.device = scenario.devices.split("+")[0]
        self.backend = scenario.backend
        if scenario.backend == "auto":
            self.backend = INDUCTOR_EAGER if self.device == HOSTED else "inductor"
        super().setup(scenario, ctx)

    def step(self, name: str, part: Callable[[], object]) -> bool:
        """As `Parts`, with the device current in the worker's thread."""

        def on_device() -> None:
            if self.device != HOSTED:
                torch.cuda.set_device(self.device)
            try:
                part()
            finally:
                take_references()  # a thread of this program may end before the others

        return super().step(name, on_device)


class CudaParts(EngineParts):
    """Parts that need a CUDA device: the first of the axis `devices`."""

    def unsupported(self, scenario: Scenario) -> str:
        """Why it cannot run here; "" when it can."""
        if scenario.devices in ("cpu", HOSTED) or not torch.cuda.is_available():
            return f"devices={scenario.devices}: this program needs a CUDA device, and there is none here"
        return ""
