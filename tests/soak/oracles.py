"""How sure the numerics oracle is: each planted corruption n times, and clean threaded trials that must not be accused.

    python -m tests.soak.oracles [--each 10] [--clean 200] [--jobs 2]

Every trial is a fresh process; the plants are those of `tests/integration/corrupt_workloads.py`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from harness.control.executors import LocalExecutor
from harness.control.references import References
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario
from tests.benchmarks.machine import machine

PLANTS = ("WrongMask", "SwappedItem", "RewoundGenerator", "StaleWeight")
AXES: dict[str, Any] = {"drafters": 2, "steps": 4, "lock": "compile_gate"}
SEEDS = 10
INTEGRATION = Path(__file__).parents[1] / "integration"


def main() -> None:
    """Print the counts; exit 1 when a plant was missed or a clean trial accused."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--clean", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(INTEGRATION), os.environ.get("PYTHONPATH", "")])
    caught: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    other: Counter[str] = Counter()
    executor = LocalExecutor(jobs=options.jobs)
    with tempfile.TemporaryDirectory() as base:
        references = References(Path(base), dtype="float32")
        healthy = [
            TrialRequest(f"seed-{seed}", Scenario(seed=seed, **AXES), 0, Path(base, f"seed-{seed}"))
            for seed in range(SEEDS)
        ]
        references.prepare(references.firsts(healthy), executor)
        requests = []
        for kind, count in [*((plant, options.each) for plant in PLANTS), ("dflash", options.clean)]:
            workload = kind if kind == "dflash" else f"corrupt_workloads:{kind}"
            for number in range(count):
                folder = Path(base, f"{kind}-{number}")
                folder.mkdir()
                scenario = Scenario(workload=workload, seed=number % SEEDS, **AXES)
                requests.append(TrialRequest(folder.name, scenario, number, folder))

        rows: list[dict[str, Any]] = []

        def take(row: dict[str, Any]) -> None:
            row["reference"] = references.key_of(healthy[int(row["scenario"]["seed"])])
            rows.append(row)

        def judge(row: dict[str, Any]) -> None:
            references.judge(row)
            kind = row["trial"].rsplit("-", 1)[0]
            ran[kind] += 1
            caught[kind] += "numerics" in row["outcomes"]
            other.update(f"{kind}: {label}" for label in row["outcomes"] if label not in ("ok", "numerics"))

        executor.run(requests, lambda _: None, take)
        while needs := {key: healthy[int(row["scenario"]["seed"])] for row in rows for key in references.awaited(row)}:
            references.prepare(needs, executor)
        for row in rows:
            judge(row)
    executor.close()
    print(machine())
    for kind in (*PLANTS, "dflash"):
        print(f"{kind}: numerics in {caught[kind]} of {ran[kind]}")
    print("other labels:", dict(other) or "none")
    missed = any(caught[plant] < ran[plant] for plant in PLANTS)
    raise SystemExit(1 if missed or caught["dflash"] else 0)


if __name__ == "__main__":
    main()
