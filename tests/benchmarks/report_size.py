"""The report of a large run: seconds to build, bytes, peak memory. Goals: ≤ 10 s and ≤ 6 MB for 1,000 trials.

    python -m tests.benchmarks.report_size [trials] [--distinct] [--paint]

The rows are made up: every third trial fails with two errors whose three stacks are as long as real ones (12 kB).
`--distinct` gives every error a fingerprint of its own and fills messages and stacks with what grows most when it is
escaped. `--paint` also opens the file in headless Chromium and prints the milliseconds to its first paint.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.control.rundir import dump_environment
from harness.core.matrix import parse_matrix
from harness.core.scenario import Scenario
from harness.report.html import write_report

from .machine import machine

MATRIX = """\
schema = 1
[axes]
lock = ["none", "per_call", "per_forward", "first_step", "warmup_barrier", "compile_gate", "every_step"]
checkpoint = ["none", "reentrant", "non_reentrant"]
shapes = ["fixed", "variable", "per_drafter"]
mask = ["eager", "compiled"]
code = ["shared", "each"]
[[expect]]
where = "lock=none"
must = ["fx_error"]
"""
SETTINGS = {"fx_errors": 2, "compiles": 6, "steps_ok": 20, "steps_failed": 2, "steps_expected": 36, "torch": "2.11.0"}


def stack(length: int, fill: str) -> str:
    """A stack of about so many characters."""
    frame = f'  File "/opt/lib/python3.11/site-packages/torch/_ops.py", line 543, in {fill}\n    return {fill}(*args)\n'
    return frame * (length // len(frame))


def error(number: int, distinct: bool) -> dict[str, Any]:
    """One error of a row."""
    fill = "<\"&'>" * 20 if distinct else "dispatch"
    tracer = {"thread": "drafter-1", "worker": "drafter-1", "region": "attention", "stack": stack(12_000, fill)}
    return {
        "label": "fx_error",
        "type": "RuntimeError",
        "message": "Detected that you are using FX " + (fill * 20 if distinct else ""),
        "fingerprint": f"{number if distinct else number % 7} RuntimeError _dynamo/eval_frame.py:compile_wrapper",
        "worker": "drafter-0",
        "thread": "drafter-0",
        "region": "attention",
        "step": 3,
        "traceback": stack(12_000, fill),
        "consequence": False,
        "tracers": [tracer, {**tracer, "worker": "drafter-2"}],
    }


def rows(trials: int, distinct: bool) -> Iterator[dict[str, Any]]:
    """So many rows, over the scenarios in turn."""
    scenarios = parse_matrix(MATRIX, file="m").scenarios
    for number in range(trials):
        scenario: Scenario = scenarios[number % len(scenarios)]
        failed = number % 3 == 0
        worker = {"role": "drafter", "losses": [5.0 + step / 7 for step in range(12)], "dense_calls": 0, "facts": {}}
        yield {
            "schema": 1,
            "trial": f"{scenario.id}--r{number // len(scenarios)}",
            "scenario_id": scenario.id,
            "scenario": scenario.to_dict(),
            "repeat": number // len(scenarios),
            "outcome": "fx_error" if failed else "ok",
            "outcomes": ["fx_error"] if failed else ["ok"],
            "startup_s": 5.0 + number % 11,
            "tokens_per_s": 800.0 + number % 101,
            "errors": [error(2 * number, distinct), error(2 * number + 1, distinct)] if failed else [],
            "workers": {f"drafter-{index}": worker for index in range(3)},
            "probes": {"dense": "ok", "fx_trace": "ok"},
            **SETTINGS,
        }


def first_paint_ms(path: Path) -> float:
    """Milliseconds from the start of navigation to the first contentful paint, in headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(path.as_uri())
        while not page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):
            page.wait_for_timeout(50)  # the page's policy forbids what wait_for_function does
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.close()
    return float(paint)


def main() -> None:
    """Make a run folder up, build its report, and print the figures."""
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    trials, distinct = (numbers or [1_000])[0], "--distinct" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        (run / "matrix.toml").write_text(MATRIX)
        (run / "environment.json").write_text(dump_environment({"torch": "2.11.0"}))
        with open(run / "results.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows(trials, distinct))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        path = write_report(run)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(machine())
        print(f"{trials:,} trials, results.jsonl {(run / 'results.jsonl').stat().st_size / 1e6:.1f} MB")
        print(f"report: {seconds:.2f} s, {path.stat().st_size / 1e6:.2f} MB")
        print(f"peak memory {peak / 1024:.0f} MB, of which {(peak - before) / 1024:.0f} MB while building")
        if "--paint" in sys.argv:
            print(f"first contentful paint: {first_paint_ms(path):.0f} ms")


if __name__ == "__main__":
    main()
