"""What a run's warm workers and its devices did, and who was idle and why. View models without markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.starved import what_starves
from harness.analysis.warm_time import KINDS, Spent
from harness.core.axes import Value
from harness.report.bars import Bar, bar
from harness.report.tallies import Load, Tallies
from harness.report.text import clip
from harness.report.wording import number

LONGEST_NAME = 120
GIB = 2**30


@dataclass(frozen=True)
class Warm:
    """How a worker's time was spent once all were warm, in percent; of all trials of a strategy together."""

    strategy: str
    worker: str
    busy: Bar
    waited: tuple[str, ...]
    seconds: str


@dataclass(frozen=True)
class Device:
    """How busy a device was under one strategy, in percent, seen from outside; means of trials."""

    strategy: str
    device: str
    warm: Bar
    whole: Bar
    memory: str
    trials: int


def warm_rows(by_lock: Mapping[str, Sequence[Tallies]]) -> tuple[Warm, ...]:
    """Workers by strategy; who took no step once all were warm is left out."""
    found = []
    for lock, parts in by_lock.items():
        together: dict[str, Spent] = {}
        for part in parts:
            for name, spent in part.spent.items():
                together.setdefault(name, Spent()).join(spent)
        found += [
            Warm(
                lock,
                clip(name, LONGEST_NAME),
                bar(100 * spent.busy, 100.0),
                tuple(_told(100 * spent.share(kind)) for kind in KINDS),
                number(spent.warm),
            )
            for name, spent in sorted(together.items())
            if spent.warm
        ]
    return tuple(found)


def _told(percent: float) -> str:
    return number(percent) if percent >= 0.05 else ""


def idle_rows(
    tallies: Mapping[str, Tallies], values: Mapping[str, Mapping[str, Value]], names: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """(scenario, who is idle there, or whose GPU is, and why), of those in which anybody who takes steps is."""
    said = [
        (names.get(scenario, scenario), what_starves(found.spent, found.seen, values[scenario]))
        for scenario, found in tallies.items()
        if scenario in values
    ]
    return tuple((name, why) for name, why in said if why)


def device_rows(by_lock: Mapping[str, Sequence[Tallies]]) -> tuple[Device, ...]:
    """Devices by strategy; on the CPU there are none."""
    found = []
    for lock, parts in by_lock.items():
        together: dict[str, Load] = {}
        for part in parts:
            for device, load in part.load.items():
                together.setdefault(device, Load()).join(load)
        for device, load in sorted(together.items()):
            warm = bar(100 * load.warm / load.warm_trials, 100.0) if load.warm_trials else Bar("–", "")
            whole = bar(100 * load.whole / load.trials, 100.0)
            found.append(Device(lock, clip(device, 40), warm, whole, number(load.most_bytes / GIB), load.trials))
    return tuple(found)
