"""What a watch costs a program: its steady step, its start, and its memory in an hour.

Goals: (events a step × nanoseconds an event) ÷ step time ≤ 1 %, and watched ÷ plain inside the interval of the program
against itself; start-up ≤ 0.3 s more; memory ≤ 50 MB more in a simulated hour of 100 steps a second. Each round is three
runs in a rotating order: watched, plain, plain again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .machine import machine, spread
from .probe_cost import nanoseconds_an_event

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("watch_program.py")
START = "import json, time, torch; print(json.dumps({'ready': time.time(), 'cpu_s': time.process_time()}))"


def run(words: list[str], python: str, watched: Path | None) -> tuple[dict[str, float], float]:
    """(what the program printed, and when it was started by the wall clock)."""
    command = [python, *words]
    if watched is not None:
        command = [sys.executable, "-m", "harness", "watch", "--quiet", "--out", str(watched), "--", *command]
    began = time.time()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found, began


def start_seconds(python: str, rounds: int) -> None:
    """Seconds from the command to the line after `import torch`, and the processor time of the program until then.

    Of the clock's times the smallest counts on a machine that others use, too; processor time hardly depends on them.
    """
    clock: dict[str, list[float]] = {"watched": [], "plain": []}
    processor: dict[str, list[float]] = {"watched": [], "plain": []}
    with tempfile.TemporaryDirectory() as base:
        for number in range(rounds):
            for name in clock:
                folder = Path(base, str(number)) if name == "watched" else None
                found, began = run(["-c", START], python, folder)
                clock[name].append(found["ready"] - began)
                processor[name].append(found["cpu_s"])
    print(f"start-up by the clock, smallest: {min(clock['watched']) - min(clock['plain']):+.3f} s")
    medians = {name: statistics.median(values) for name, values in processor.items()}
    print(f"start-up by the program's processor time, median: {medians['watched'] - medians['plain']:+.3f} s")
    print(f"  of {spread(clock['plain'])} s by the clock, {spread(processor['plain'])} s of processor time")


def added_microseconds(python: str, rounds: int) -> str:
    """What a watch adds to a compiled call, a backward and an optimizer's step together."""
    seconds: dict[str, list[float]] = {"watched": [], "plain": []}
    with tempfile.TemporaryDirectory() as base:
        for number in range(rounds):
            for name in seconds:
                folder = Path(base, str(number)) if name == "watched" else None
                found, _ = run([str(PROGRAM), "5000", "tiny"], python, folder)
                seconds[name].append(found["step_s"])
    return spread([(a - b) * 1e6 for a, b in zip(seconds["watched"], seconds["plain"], strict=True)])


def events_a_step(folder: Path, steps: int) -> float:
    """Of the warm steps: engine runs are counted in full, whatever the log kept."""
    row = json.loads((folder / "results.jsonl").read_text().splitlines()[0])
    sums = row["workers"]["MainThread"]["facts"]["sums"]
    runs = sums["engine_runs"] / sums["steps"]
    log = (folder / "trials" / row["trial"] / "events.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["k"] for line in log[-steps:]]  # a step makes two
    others = sum(kind not in ("engine.enter", "engine.exit", "subject.end") for kind in kinds)
    assert not others, f"a warm step made other events than the engine's: {set(kinds)}"
    return 2 * runs


def main() -> None:
    """Print all bounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"watched": [], "plain": [], "plain again": []}
    count = 0.0
    with tempfile.TemporaryDirectory() as base:
        for number in range(options.rounds):
            names = list(seconds)
            for name in names[number % 3 :] + names[: number % 3]:
                folder = Path(base, f"{number}") if name == "watched" else None
                found, _ = run([str(PROGRAM), str(options.steps)], options.python, folder)
                seconds[name].append(found["step_s"])
                if folder is not None:
                    count = events_a_step(folder, options.steps)
    cost, step = nanoseconds_an_event(), statistics.median(seconds["plain"])
    print(machine())
    print(f"step: {step * 1e3:.2f} ms; events a step: {count:.1f}; an event: {cost:.0f} ns")
    print(f"count × cost: {count * cost / (step * 1e9):.3%} of a step")
    print(f"watched / plain: {spread([a / b for a, b in zip(seconds['watched'], seconds['plain'], strict=True)])}")
    print(f"plain / plain:   {spread([a / b for a, b in zip(seconds['plain again'], seconds['plain'], strict=True)])}")
    print(f"a compiled call, a backward and an optimizer's step: {added_microseconds(options.python, 3)} µs more")
    start_seconds(options.python, options.starts)
    hour = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.watch_hour"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    print(f"an hour of 100 steps a second: {hour.stdout.strip()}")


if __name__ == "__main__":
    main()
