"""Start of a trial: a fork of the start server against a fresh interpreter, interleaved in one run.

The clock runs from `spec.json` (the request) to the subject's mark that its probes are installed and the workload's
`setup` begins. Goals: median ≤ 0.6 s by fork on 2 cores, and ≤ 0.2 of a fresh interpreter's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from harness.control.executors import LocalExecutor
from harness.control.request import Row, TrialRequest
from harness.core.scenario import Scenario

from .machine import machine, spread


def main() -> None:
    """Print both medians and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    pairs = parser.parse_args().pairs
    starts: dict[str, list[float]] = {"fork": [], "exec": []}
    executors = {how: LocalExecutor(how="auto" if how == "fork" else how) for how in starts}
    try:
        for executor in executors.values():
            executor.wait_ready()
        with tempfile.TemporaryDirectory() as base:
            for pair in range(pairs):
                for how, executor in executors.items():
                    folder = Path(base, f"{how}-{pair}")
                    folder.mkdir()
                    rows: list[Row] = []
                    request = TrialRequest(f"{how}-{pair}", Scenario(steps=1, drafters=1), pair, folder)
                    executor.run([request], lambda _: None, rows.append)
                    starts[how].append(float(rows[0]["start_s"]))
    finally:
        for executor in executors.values():
            executor.close()
    print(machine())
    for how, values in starts.items():
        print(f"{how}: {spread(values)} s")
    print(f"fork / exec: {statistics.median(starts['fork']) / statistics.median(starts['exec']):.3f}")


if __name__ == "__main__":
    main()
