"""`pct:SEED:DEPTH[:POINTS]`: random priorities, and DEPTH - 1 points of the run at which the running thread's drops.

Burckhardt, Kothari, Musuvathi, Nagarakatte: *A randomized scheduler with probabilistic guarantees of finding bugs*, ASPLOS
2010. With n threads and k steps a bug of depth d is found with probability at least 1/(n·k^(d-1)) in each run.

Departures. A step is a sync point passed, not an instruction; code between two points is taken to be atomic, so the bound
is claimed for programs whose every access to what they share has a point before it, which run serially here and whose k is
known (POINTS): the planted programs of the tests. On torch it is a heuristic: compiles pass few points, k is a guess, and
threads in the autograd engine are not scheduled while they pass none. Threads that appear later than the workers (the
engine's) get their priority from the seed and their name.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.schedulespec import ScheduleSpec

from .base import Schedule, Setting
from .crew import Seat, seat_name
from .serial import Serial

POINTS = 400  # k, when it is not given


class Pct(Serial):
    """Of those at a point the one of highest priority goes."""

    def __init__(self, spec: ScheduleSpec, setting: Setting) -> None:
        super().__init__(setting)
        self._spec = spec
        self._depth = spec.depth
        self._random = random.Random(f"pct/{spec.seed}")
        k = spec.points or POINTS
        changes = self._random.sample(range(1, k + 1), min(self._depth - 1, k))
        # Change point i lowers to d - i: below all that threads begin with, and below the earlier ones.
        self._changes = {step: self._depth - 1 - i for i, step in enumerate(sorted(changes))}
        self._priorities: dict[str, float] = {}
        self._steps = 0
        self._changed: list[dict[str, Any]] = []

    def begin(self, workers: Mapping[str, str]) -> None:
        """Priorities d, d + 1, … at random, by name and not by who starts first."""
        super().begin(workers)
        names = sorted(workers)
        self._random.shuffle(names)
        self._priorities = {name: float(self._depth + i) for i, name in enumerate(names)}

    def choose(self, waiting: Sequence[Seat]) -> Seat | None:
        """The highest priority."""
        return max(waiting, key=lambda seat: self._priority(seat_name(seat.thread)))

    def passed(self, seat: Seat, point: str, info: str) -> None:
        """Counts; at a change point the thread that has made this step falls behind."""
        self._steps += 1
        lowered = self._changes.get(self._steps)
        if lowered is not None:
            name = seat_name(seat.thread)
            self._priorities[name] = float(lowered)
            self._changed.append({"after": self._steps, "seat": name, "point": point})

    def result(self) -> dict[str, Any]:
        """For `result.json`."""
        return {
            "kind": "pct",
            "seed": self._spec.seed,
            "depth": self._depth,
            "steps": self._steps,
            "changes": self._changed,
        }

    def _priority(self, name: str) -> float:
        if name not in self._priorities:
            among = self._depth + len(self._priorities) * random.Random(f"pct/{self._spec.seed}/{name}").random()
            self._priorities[name] = among
        return self._priorities[name]


def make(spec: ScheduleSpec, setting: Setting) -> Schedule | None:
    """From the axis alone."""
    return Pct(spec, setting)
