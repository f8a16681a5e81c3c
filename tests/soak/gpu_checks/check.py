"""What a check is, and what it measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """What was measured. `text`: for the table; `values`: the numbers, as JSON has them.

    `reached`: whether the check's goal is; None where it has none, or too little is known.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    reached: bool | None = None


@dataclass(frozen=True)
class Place:
    """Where a check runs. `folder`: its own, which is there; what an earlier part of it left lies there too.

    jobs  trials that it may run at the same time
    """

    folder: Path
    jobs: int


@dataclass(frozen=True)
class Check:
    """One thing to measure on GPUs, by one command.

    name       also the name of its folder
    measures   in one line
    command    the words to run
    figure     what the command left in the folder; may raise OSError, ValueError or LookupError where that is not whole
    cost_s     about how long it takes
    devices    CUDA devices that it needs
    goal       what must be reached; "" where it is a fact that is asked for
    jobs       the most trials that it runs at the same time; 0: it measures time or memory, so nothing may run beside it
    slice_s    for one that goes on in its folder when it was cut: the least time worth starting it for
    codes      exit codes with which the command has given an answer
    variables  of its environment
    """

    name: str
    measures: str
    command: Callable[[Place], list[str]]
    figure: Callable[[Path], Figure]
    cost_s: float
    devices: int = 1
    goal: str = ""
    jobs: int = 0
    slice_s: float | None = None
    codes: tuple[int, ...] = (0,)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def least_s(self) -> float:
        """The time that must be left for it to be started."""
        return self.cost_s if self.slice_s is None else min(self.slice_s, self.cost_s)

    @property
    def limit_s(self) -> float:
        """Longer than this it hangs."""
        return 3 * self.cost_s + 60


DONE, FAILED, CUT, SKIPPED = "done", "failed", "cut", "skipped"
"""How a check stands. Done: the command has given its answer, whether or not the goal is reached."""

FINISHED = (DONE, FAILED)
"""Not run again unless asked for."""
