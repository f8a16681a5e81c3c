"""Each program of `hang_programs` as a workload: its threads are the workers, its hang is the trial's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from harness.core.workload import Context, Scenario, Worker

FOLDER = Path(__file__).parent / "hang_programs"


class Program:
    def __init__(self, name: str) -> None:
        self.name = name

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        sys.path.insert(0, str(FOLDER))
        self.threads = importlib.import_module(self.name).threads()

    def workers(self) -> list[Worker]:
        return [Worker(name, "drafter", "cpu", function) for name, function in self.threads]

    def stop(self) -> None:
        """Nobody can."""


def __getattr__(name: str) -> Callable[[], Program]:
    """A factory for each program."""
    if not (FOLDER / f"{name}.py").exists():
        raise AttributeError(name)
    return lambda: Program(name)
