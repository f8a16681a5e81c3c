"""No false alarm: a healthy program whose pauses last up to 90 % of the hang timeout, under a trial's watchdog.

    python -m tests.soak.healthy_pauses [--minutes 30] [--timeout 4]

The pauses are those of `tests/integration/pausing_workloads.py`: in locks, queues, barriers, conditions, joins, a child
process, and native calls that keep the interpreter lock.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario
from tests.benchmarks.machine import machine

INTEGRATION = Path(__file__).parents[1] / "integration"
PART = 0.9


def pauses_request(folder: Path, *, seconds: float, hang_timeout_s: float) -> TrialRequest:
    """One such trial. The subject's path must lead to `INTEGRATION`."""
    return TrialRequest(
        "pauses",
        Scenario(workload="pausing_workloads:Pauses"),
        0,
        folder,
        pipeline={"pause_s": PART * hang_timeout_s, "seconds": seconds},
        timeout_s=seconds + 20 * hang_timeout_s + 60,
        hang_timeout_s=hang_timeout_s,
    )


def main() -> None:
    """Print what came of it; exit 1 for an alarm."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--timeout", type=float, default=4.0)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(INTEGRATION), os.environ.get("PYTHONPATH", "")])
    rows: list[dict[str, Any]] = []
    executor = LocalExecutor()
    try:
        with tempfile.TemporaryDirectory() as folder:
            request = pauses_request(Path(folder), seconds=60 * options.minutes, hang_timeout_s=options.timeout)
            executor.run([request], lambda _: None, rows.append)
    finally:
        executor.close()
    (row,) = rows
    pauses = row["workers"].get("drafter-0", {}).get("facts", {}).get("rounds", "?")
    print(machine())
    print(f"{pauses} pauses of {PART * options.timeout:.1f} s, hang timeout {options.timeout:g} s:", *row["outcomes"])
    print(row["reason"])
    raise SystemExit(0 if row["outcomes"] == ["ok"] else 1)


if __name__ == "__main__":
    main()
