"""What the probes cost a warm step: by count × cost, and by pairs of trials with probes on and off.

Goals: (events a step × measured nanoseconds an event) ÷ step time ≤ 1 %, where a CUDA device's event of its memory counts
with the reading of the allocator, and the paired difference on/off inside the
interval of the code against itself. Each pair is three trials in a rotating order: on, off, and off again. Compiler caches
are warm: only steps that are warm count. `--json` is written after every pair, so that what is cut has a figure too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.control.caches import WarmCaches
from harness.control.executors import LocalExecutor
from harness.control.request import Row, TrialRequest
from harness.core.scenario import Scenario
from harness.subject.eventlog import EventLog
from harness.subject.identity import Threads

from .machine import machine, spread

WARM = 5  # steps left out at the start


def nanoseconds_an_event() -> float:
    """Median over batches of one emit, in a process that does nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(Path(folder), Threads())
        found = _batches(lambda: log.emit("region.enter", ',"r":"attention"'))
        log.close()
    return found


def nanoseconds_a_reading(devices: str) -> float:
    """Median over batches of what the memory probe does after a step, its event included; nan where it does nothing.

    Measured in a process of its own, so that no CUDA context lies beside the trials'.
    """
    if "cuda" not in devices:
        return math.nan
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_reading, (devices,))


def _reading(devices: str) -> float:
    import torch

    from harness.subject.probes.base import Scope
    from harness.subject.probes.memory import MemoryProbe
    from harness.subject.record import Trial

    device = devices.split("/")[-1].split("+")[0]
    kept = [torch.ones(size, device=device) for size in (10, 10_000, 10_000_000)]  # of small and large blocks
    threads = Threads()
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(Path(folder), threads)
        probe = MemoryProbe(Scope(log, threads, Trial(), Scenario(devices=devices)))
        if (status := probe.install()) != "ok":
            raise RuntimeError(f"the memory probe is {status}")
        probe.place({"drafter-0": device})
        found = _batches(lambda: probe.stepped("drafter-0"))
        log.close()
    del kept
    return found


def _batches(function: Callable[[], object]) -> float:
    """Median nanoseconds a call, over batches."""
    batches = []
    for _ in range(20):
        began = time.perf_counter_ns()
        for _ in range(1000):
            function()
        batches.append((time.perf_counter_ns() - began) / 1000)
    return statistics.median(batches)


def step_seconds_and_events(folder: Path) -> tuple[float, float, float]:
    """Median seconds between a drafter's good steps, its events a step, and those of memory among them, all once warm."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    own = [event for event in events if event["w"] == "drafter-0"]
    ends = [event["t"] for event in own if event["k"] == "step.done"][WARM:]
    seconds = statistics.median((b - a) / 1e9 for a, b in itertools.pairwise(ends))
    warm = [event["k"] for event in own if ends[0] < event["t"] <= ends[-1]]
    return seconds, len(warm) / (len(ends) - 1), warm.count("memory") / (len(ends) - 1)


def main() -> None:
    """Print both bounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--json", default="", help="also write the figures to this file")
    options = parser.parse_args()
    scenario = Scenario(
        steps=options.steps, drafters=1, checkpoint="non_reentrant", devices=options.devices, cache="warm"
    )
    seconds: dict[str, list[float]] = {"on": [], "off": [], "off again": []}
    counts: list[tuple[float, float]] = []
    cost, found = Cost(nanoseconds_an_event(), nanoseconds_a_reading(options.devices)), {}
    executor = LocalExecutor()
    try:
        with tempfile.TemporaryDirectory() as base:
            caches = WarmCaches(Path(base))
            caches.prime([TrialRequest("first", scenario, 0, Path(base))], executor)
            for pair in range(options.pairs):
                names = list(seconds)
                for name in names[pair % 3 :] + names[: pair % 3]:
                    folder = Path(base, f"{pair}-{name}")
                    folder.mkdir()
                    rows: list[Row] = []
                    request = caches.use(TrialRequest(folder.name, scenario, pair, folder, probes=name == "on"))
                    executor.run([request], lambda _: None, rows.append)
                    step, count, readings = step_seconds_and_events(folder)
                    seconds[name].append(step)
                    if name == "on":
                        counts.append((count, readings))
                found = _figures(options.devices, seconds, counts, cost)
                if options.json:
                    Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    finally:
        executor.close()
    print(found["machine"])
    print(f"step: {found['step_ms']:.2f} ms; events a step: {found['events_a_step']:.1f}; an event: {cost.event_ns:.0f} ns")
    if found["readings_a_step"]:
        print(f"of memory: {found['readings_a_step']:.1f} a step, each with its event: {cost.reading_ns:.0f} ns")
    print(f"count × cost: {found['share']:.3%} of a step")
    print(f"probes on / off: {spread(found['on_off'])}")
    print(f"off / off:       {spread(found['off_off'])}")


@dataclass(frozen=True)
class Cost:
    """Nanoseconds of an event, and of a reading of a device's memory with its event; nan: there is none."""

    event_ns: float
    reading_ns: float

    def of(self, events: float, readings: float) -> float:
        """Nanoseconds of so many events, of which so many are readings."""
        return (events - readings) * self.event_ns + (readings * self.reading_ns if readings else 0.0)


def _figures(
    devices: str, seconds: dict[str, list[float]], counts: list[tuple[float, float]], cost: Cost
) -> dict[str, Any]:
    step = statistics.median(seconds["on"])
    events, readings = (statistics.median(column) for column in zip(*counts, strict=True))
    return {
        "machine": machine(), "devices": devices, "step_ms": step * 1e3, "events_a_step": events, "event_ns": cost.event_ns,
        "readings_a_step": readings, "reading_ns": cost.reading_ns if readings else None,
        "share": cost.of(events, readings) / (step * 1e9),
        "on_off": [on / off for on, off in zip(seconds["on"], seconds["off"], strict=True)],
        "off_off": [again / off for again, off in zip(seconds["off again"], seconds["off"], strict=True)],
    }  # fmt: skip


if __name__ == "__main__":
    main()
