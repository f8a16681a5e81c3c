"""A worker's step raises, and another worker then takes the process down: no account is written."""

from __future__ import annotations

import os
import threading
from functools import partial

from harness.core.workload import Context, Scenario, Worker

WAIT_S = 30.0


class Aborts:
    """drafter-0 takes two good steps and one that raises, target-0 one good step; then drafter-1 ends the process."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self.ctx = ctx
        self.told = threading.Event()

    def workers(self) -> list[Worker]:
        roles = (("target-0", "target", self.feed), ("drafter-0", "drafter", self.fail), ("drafter-1", "drafter", self.die))
        return [Worker(name, role, "cpu", partial(run, name)) for name, role, run in roles]

    def stop(self) -> None:
        self.told.set()

    def feed(self, name: str) -> None:
        self.ctx.step(name, tokens=9, loss=None)
        self.stay()

    def fail(self, name: str) -> None:
        for loss in (1.5, 1.25):
            self.ctx.step(name, tokens=3, loss=loss)
        try:
            self.break_it(name)
        except ValueError as error:
            self.ctx.step_failed(name, error)
        self.told.set()
        self.stay()

    def break_it(self, name: str) -> None:
        with self.ctx.region("loss", name):
            raise ValueError("planted: the step went wrong")

    def stay(self) -> None:
        threading.Event().wait(WAIT_S)

    def die(self, name: str) -> None:
        if self.told.wait(WAIT_S):
            self.end()

    def end(self) -> None:
        os.abort()


class Exits(Aborts):
    def end(self) -> None:
        os._exit(134)


class Daemon(Aborts):
    """It closes whatever is open, as a daemon does, and opens files of its own in those numbers."""

    def break_it(self, name: str) -> None:
        os.closerange(3, 256)
        self.files = [os.open(os.devnull, os.O_WRONLY) for _ in range(20)]
        super().break_it(name)
