"""Sums over the trials of a scenario that its charts are made of. Memory grows with scenarios, not with trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from harness.analysis.starved import Seen, add_loads
from harness.analysis.warm_time import Spent
from harness.control.request import Row

NO_WORKER = "(no worker)"
"""Of compiles and dense calls by threads that belong to no worker, such as the main thread's warm-up."""

MOST_NAMES = 64

Entry = TypeVar("Entry")


@dataclass
class Work:
    """Compiles and dense calls of one thread's worker, over so many trials."""

    compiles: int = 0
    dense_calls: int = 0


@dataclass
class LockTime:
    """Seconds that all threads together waited for a lock, and held it."""

    waited: float = 0.0
    held: float = 0.0
    waits: int = 0
    taken: int = 0


@dataclass
class Load:
    """Of a device, seen from outside: sums of trials' mean shares of time in which it was busy, and how many trials."""

    warm: float = 0.0
    warm_trials: int = 0
    whole: float = 0.0
    trials: int = 0
    most_bytes: float = 0.0

    def join(self, other: Load) -> None:
        """Those of further trials."""
        self.warm += other.warm
        self.warm_trials += other.warm_trials
        self.whole += other.whole
        self.trials += other.trials
        self.most_bytes = max(self.most_bytes, other.most_bytes)


@dataclass
class Tallies:
    """Of one scenario. `memory`: device → (allocated, reserved), the largest peaks in bytes."""

    trials: int = 0
    work: dict[str, Work] = field(default_factory=dict)
    locks: dict[str, LockTime] = field(default_factory=dict)
    memory: dict[str, tuple[float, float]] = field(default_factory=dict)
    spent: dict[str, Spent] = field(default_factory=dict)
    load: dict[str, Load] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)  # the devices of drafters, in trials that tell enough

    def add(self, row: Row) -> None:
        """Count one trial's row, which must be sound."""
        if not row["workers"]:
            return
        self.trials += 1
        counted = Work()
        for name, worker in row["workers"].items():
            part = Work(_number(worker, "compiles"), _number(worker, "dense_calls"))
            counted.compiles += part.compiles
            counted.dense_calls += part.dense_calls
            self._work(name, part)
            _at(self.spent, name, Spent()).add(worker)
        elsewhere = Work(row["compiles"] - counted.compiles, row["dense_calls"] - counted.dense_calls)
        if elsewhere.compiles > 0 or elsewhere.dense_calls > 0:
            self._work(NO_WORKER, Work(max(0, elsewhere.compiles), max(0, elsewhere.dense_calls)))
        for name, sums in row["locks"].items():
            lock = _at(self.locks, name, LockTime())
            lock.waited += sums.get("wait_s", 0.0)
            lock.held += sums.get("hold_s", 0.0)
            lock.waits += int(sums.get("waits", 0))
            lock.taken += int(sums.get("taken", 0))
        for device, peaks in row["memory"].items():
            known = _at(self.memory, device, (0.0, 0.0))
            fresh = (peaks.get("peak_allocated", 0.0), peaks.get("peak_reserved", 0.0))
            self.memory[device] = (max(known[0], fresh[0]), max(known[1], fresh[1]))

        add_loads(self.seen, row)
        for device, seen in row["gpu_load"].items():
            if "busy_mean" in seen:
                warm = seen.get("busy_warm")
                fresh_load = Load(warm or 0.0, int(warm is not None), seen["busy_mean"], 1, seen.get("most_bytes", 0.0))
                _at(self.load, device, Load()).join(fresh_load)

    def _work(self, name: str, part: Work) -> None:
        work = _at(self.work, name, Work())
        work.compiles += part.compiles
        work.dense_calls += part.dense_calls


def _at(entries: dict[str, Entry], name: str, fresh: Entry) -> Entry:
    return entries.setdefault(name if name in entries or len(entries) < MOST_NAMES else "(others)", fresh)


def _number(worker: Mapping[str, object], name: str) -> int:
    value = worker.get(name)
    return value if isinstance(value, int) and 0 < value < 2**63 else 0
