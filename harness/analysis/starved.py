"""What keeps the GPU of a drafter idle that waits for nobody, from the devices' load as NVML saw it from outside.

    seen = {}; add_loads(seen, row)                 # device → Seen, of any number of trials of one scenario
    why_starved(spent, seen, row["scenario"])       # "drafter-0 waits for nobody, yet its GPU is busy 53 % …"; "" if none is
    what_starves(spent, seen, row["scenario"])      # that, after what `why_idle` says of those who do wait

A wait for Python's interpreter lock, for a core or in the driver is none of ours, so `Spent.busy` counts it as work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.warm_time import BUSY, Spent, is_seconds, names_of, range_of, steppers_of, why_idle

LOADED = 0.9
"""A device that a kernel runs on for this share of the time is not starved."""

MIN_SAMPLES = 16
"""Once warm, or a trial tells nothing of a device. NVML's samples, four a second, are each of up to a second before it, so the
first ones may be of the time before all were warm, up to 1.5 in all: less than a tenth of 16, so `LOADED` bears it."""

RAN = 0.9
"""A thread that ran for this share of the time was kept off its core by nothing worth naming."""

_MOST_DEVICES = 64


@dataclass
class Seen:
    """A device of drafters: sums over trials of the shares of the time once warm in which it was busy, and in which a drafter
    of it still took steps."""

    busy: float = 0.0
    at_work: float = 0.0
    trials: int = 0

    @property
    def load(self) -> float:
        """The share in which it was busy."""
        return self.busy / self.trials

    @property
    def starved(self) -> bool:
        """Whether it would be, had it been busy all the time since its last drafter ended: that idleness is no finding."""
        return self.busy < LOADED * self.at_work


def ends_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Worker → its last good step, in seconds since all who take steps were warm, of those of whom that is known.

    A drafter of a process of its own (`lock = "process"`) counts from when it was warm itself.
    """
    workers, scenario, startup = row.get("workers"), row.get("scenario"), row.get("startup_s")
    apart = isinstance(scenario, dict) and scenario.get("lock") == "process"
    found = {}
    for name, one in workers.items() if isinstance(workers, dict) else ():
        lasted, first = (one.get("warm_s"), one.get("first_good_s")) if isinstance(one, dict) else (None, None)
        if not is_seconds(lasted):
            continue
        early = startup - first if apart and is_seconds(first) and is_seconds(startup) else 0.0
        found[name] = lasted - early
    return found


def add_loads(into: dict[str, Seen], row: Mapping[str, Any]) -> None:
    """One trial's, of the devices that its drafters may run on and that were sampled often enough."""
    loads, ends = row.get("gpu_load"), ends_of(row)
    window = max(ends.values(), default=0.0)
    if not isinstance(loads, dict) or window <= 0.0:
        return
    steppers = [name for name, one in row["workers"].items() if one.get("role") == "drafter"] or list(row["workers"])
    places = {name: devices_of(name, row["scenario"]) for name in steppers}
    for device in {device for found in places.values() for device in found}:
        load = loads.get(device)
        busy, samples = (load.get("busy_warm"), load.get("samples_warm")) if isinstance(load, dict) else (None, None)
        if not is_seconds(busy) or not is_seconds(samples) or samples < MIN_SAMPLES:
            continue
        there = [ends.get(name, 0.0) for name, found in places.items() if device in found]
        sure = all(len(found) == 1 for found in places.values())
        last = max(there) if sure else min(there)  # who of them was there is not known: each must have been at work
        if device in into or len(into) < _MOST_DEVICES:
            seen = into.setdefault(device, Seen())
            seen.busy += min(1.0, busy)
            seen.at_work += min(1.0, max(0.0, last) / window)
            seen.trials += 1


def devices_of(worker: str, scenario: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that a drafter may run on, by the axes: of the pipeline's it is known which, for they are dealt out in turn."""
    devices = tuple(str(scenario.get("devices", "")).split("/")[-1].split("+"))
    number = re.fullmatch(r"drafter-(\d{1,9})", worker)
    if number is None or scenario.get("workload") != "dflash":
        return devices
    return (devices[int(number[1]) % len(devices)],)


def what_starves(workers: Mapping[str, Spent], seen: Mapping[str, Seen], scenario: Mapping[str, Any]) -> str:
    """What keeps those idle who wait, and the GPUs of those who do not; "" where nobody is, or nothing is known."""
    return "; ".join(filter(None, (why_idle(workers), why_starved(workers, seen, scenario))))


def why_starved(workers: Mapping[str, Spent], seen: Mapping[str, Seen], scenario: Mapping[str, Any]) -> str:
    """Which drafters wait for nobody while all GPUs that they may run on are idle, and what is known of why; else ""."""
    steppers = steppers_of(workers)
    places = {name: devices_of(name, scenario) for name in steppers}
    waiting = {device for name, one in steppers.items() if one.busy < BUSY for device in places[name]}
    starved = {
        name: one
        for name, one in steppers.items()
        if not waiting.intersection(places[name])  # for the sake of those who wait it may be idle, and they have their sentence
        and all(device in seen and seen[device].starved for device in places[name])
    }
    if not starved:
        return ""
    devices = sorted({device for name in starved for device in places[name]})
    one, gpus = len(starved) == 1, "GPU is" if len(devices) == 1 else "GPUs are"
    who = f"{names_of(sorted(starved))} {'waits' if one else 'wait'} for nobody, yet {'its' if one else 'their'} {gpus} busy"
    load = range_of([seen[device].load for device in devices])
    return f"{who} {load} of the time once all are warm: {_cause(list(starved.values()), len(workers) > 1, scenario)}"


def _cause(starved: Sequence[Spent], several: bool, scenario: Mapping[str, Any]) -> str:
    """`several`: workers, whose threads share a process unless each drafter has its own."""
    one, lock = len(starved) == 1, "the interpreter lock, which all threads of the process share"
    shared = several and scenario.get("lock") != "process"
    known = [share for share in (spent.ran for spent in starved) if share is not None]
    threads, they = ("its thread", "it") if one else ("their threads", "they")
    if len(known) < len(starved):
        why = f"kernels are launched too slowly, and how long {threads} ran is not known"
        why += "; all threads of the process share one interpreter lock" if shared else ""
        return f"{why}; {_what_helps(shared, scenario)}"
    ran = f"{threads} ran {range_of(known)} of it"
    if min(known) >= RAN:  # an interpreter of its own would make it no faster
        return f"{ran}, so {they} cannot launch kernels any faster; {_what_helps(False, scenario)}"
    rest = ["a core", "the driver", "autograd's thread in backward", *([lock] if shared else [])]
    waited = f"{', '.join(rest[:-1])} or {rest[-1]}"
    why = f"{ran}, so kernels are launched too slowly: else {they} waited for {waited}"
    return f"{why}; {_what_helps(shared, scenario)}"


def _what_helps(apart: bool, scenario: Mapping[str, Any]) -> str:
    """`apart`: an interpreter of its own may help a drafter."""
    found = []
    if scenario.get("workload") == "dflash":
        if scenario.get("cudagraphs") != "manual" and scenario.get("shapes") != "variable":
            found.append('cudagraphs = "manual"')
        if apart and scenario.get("replicas") != "synchronised" and scenario.get("warmup", "none") == "none":
            found.append('lock = "process"')
    elif scenario.get("cudagraphs", "off") == "off":
        found.append("CUDA graphs")
    found.append("larger steps")
    return f"{' or '.join(filter(None, (', '.join(found[:-1]), found[-1])))} may help"
