"""What lock strategies cost: start-up and steady tokens/s, a trial of each in turn, ratios to no lock within each round.

    python -m tests.benchmarks.strategy_cost [--rounds 8] [--steps 40] [--python PY]

The pipeline with `shapes = "fixed"`, three drafters, cold caches, `on_error = "skip"`, so that an unlocked run that fails
in a step still gives a speed. Medians with bootstrap intervals (95 %). The machine should be idle otherwise.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from harness.analysis.resample import median_interval
from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario
from tests.benchmarks.machine import machine

VARIANTS: dict[str, dict[str, str]] = {
    "none": {},
    "first_step": {"lock": "first_step"},
    "warmup_barrier": {"lock": "warmup_barrier"},
    "compile_gate": {"lock": "compile_gate"},
    "warm_gate": {"lock": "warm_gate"},
    "compile_gate, early_lowering": {"lock": "compile_gate", "dynamo": "early_lowering"},
    "every_step": {"lock": "every_step"},
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--python", default=None)
    options = parser.parse_args()
    executor = LocalExecutor(python=options.python)
    folder = Path(tempfile.mkdtemp(prefix="strategy-cost-"))
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    try:
        for number in range(options.rounds):
            for name, axes in VARIANTS.items():
                own = folder / f"{number}-{name.replace(', ', '-')}"
                own.mkdir()
                scenario = Scenario(steps=options.steps, on_error="skip", **axes)  # type: ignore[arg-type]
                executor.run([TrialRequest(own.name, scenario, 0, own)], lambda _: None, rows[name].append)
    finally:
        executor.close()
    print(machine())
    print(f"torch {rows['none'][0]['torch']}, {options.rounds} rounds of {options.steps} steps; against none of the same round")
    for name, found in rows.items():
        parts = []
        for what in ("tokens_per_s", "startup_s"):
            ratios = [
                one[what] / base[what]
                for one, base in zip(found, rows["none"], strict=True)
                if one[what] and base[what]
            ]
            if ratios:
                parts.append(f"{what} × {median_interval(ratios)} (n = {len(ratios)})")
        failed = sum(one["outcome"] != "ok" for one in found)
        print(f"{name:30} {'; '.join(parts)}; {failed} of {len(found)} failed")


if __name__ == "__main__":
    main()
