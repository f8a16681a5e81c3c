"""What the probes cost a warm step: by count × cost, and by pairs of trials with probes on and off.

Goals: (events a step × measured nanoseconds an event) ÷ step time ≤ 1 %, and the paired difference on/off inside the
interval of the code against itself. Each pair is three trials in a rotating order: on, off, and off again. Compiler caches
are warm: only steps that are warm count. `--json` is written after every pair, so that what is cut has a figure too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
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
    batches = []
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(Path(folder), Threads())
        for _ in range(20):
            began = time.perf_counter_ns()
            for _ in range(1000):
                log.emit("region.enter", ',"r":"attention"')
            batches.append((time.perf_counter_ns() - began) / 1000)
        log.close()
    return statistics.median(batches)


def step_seconds_and_events(folder: Path) -> tuple[float, float]:
    """Median seconds between a drafter's good steps, and its events a step, both once warm."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    own = [event for event in events if event["w"] == "drafter-0"]
    ends = [event["t"] for event in own if event["k"] == "step.done"][WARM:]
    seconds = statistics.median((b - a) / 1e9 for a, b in itertools.pairwise(ends))
    count = sum(ends[0] < event["t"] <= ends[-1] for event in own) / (len(ends) - 1)
    return seconds, count


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
    counts: list[float] = []
    cost, found = nanoseconds_an_event(), {}
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
                    step, count = step_seconds_and_events(folder)
                    seconds[name].append(step)
                    if name == "on":
                        counts.append(count)
                found = _figures(options.devices, seconds, counts, cost)
                if options.json:
                    Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    finally:
        executor.close()
    print(found["machine"])
    print(f"step: {found['step_ms']:.2f} ms; events a step: {found['events_a_step']:.1f}; an event: {cost:.0f} ns")
    print(f"count × cost: {found['share']:.3%} of a step")
    print(f"probes on / off: {spread(found['on_off'])}")
    print(f"off / off:       {spread(found['off_off'])}")


def _figures(devices: str, seconds: dict[str, list[float]], counts: list[float], cost_ns: float) -> dict[str, Any]:
    step, events = statistics.median(seconds["on"]), statistics.median(counts)
    return {
        "machine": machine(), "devices": devices, "step_ms": step * 1e3, "events_a_step": events, "event_ns": cost_ns,
        "share": events * cost_ns / (step * 1e9),
        "on_off": [on / off for on, off in zip(seconds["on"], seconds["off"], strict=True)],
        "off_off": [again / off for again, off in zip(seconds["off again"], seconds["off"], strict=True)],
    }  # fmt: skip


if __name__ == "__main__":
    main()
