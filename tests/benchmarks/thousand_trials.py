"""A thousand trials that do nothing: trials a minute, and the memory of the control side.

Goals: at least 250 trials a minute on 2 cores, and control memory that is flat: what it grows by after the first hundred
trials is less than 10 MB. The clock runs from the first trial's start to the last row, without the import of torch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from harness.control.executors import LocalExecutor
from harness.control.references import References
from harness.control.request import Row, TrialRequest
from harness.control.rundir import open_run
from harness.control.runner import carry_out, make_plan
from harness.core.matrix import parse_matrix
from harness.report.progress import Progress

from .machine import machine

MATRIX = """\
schema = 1
[defaults]
workload = "nothing"
[axes]
lock = ["none", "first_step", "compile_gate", "every_step"]
drafters = [1, 2, 3, 4, 5]
"""
SCENARIOS = 20


class Samples(Progress):
    """Notes the control side's memory, in MB, and the time as rows come."""

    def __init__(self) -> None:
        super().__init__()
        self.began = 0.0
        self.ended_at = 0.0
        self.memory: list[float] = []

    def started(self, request: TrialRequest) -> None:  # type: ignore[override]
        """The clock starts with the first."""
        super().started(request)
        self.began = self.began or time.monotonic()

    def ended(self, row: Row) -> None:  # type: ignore[override]
        """A row is on disk."""
        super().ended(row)
        self.ended_at = time.monotonic()
        self.memory.append(resident_mb())


def resident_mb() -> float:
    """Memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    """Print rate and memory; exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="keep the run in this folder")
    options = parser.parse_args()
    matrix = parse_matrix(MATRIX, file="thousand.toml")
    executor = LocalExecutor(jobs=options.jobs)
    samples = Samples()
    with tempfile.TemporaryDirectory() as base:
        path = options.keep or Path(base, "run")
        with open_run(path, resume=False) as folder:
            folder.write("matrix.toml", MATRIX)
            folder.open_results(print)
            plan = make_plan(matrix, matrix.scenarios, folder, repeats=-(-options.trials // SCENARIOS))
            try:
                executor.wait_ready()
                references = References(path, "float32")
                references.prepare(references.firsts(plan.requests), executor)  # before the clock starts: they are no trials
                carry_out(plan, folder, executor, samples, references=references)
            finally:
                executor.close()
    done = len(samples.memory)
    rate = 60 * done / (samples.ended_at - samples.began)
    grown = samples.memory[-1] - samples.memory[min(100, done - 1)]
    print(machine())
    print(f"{done} trials, {options.jobs} at a time: {rate:.0f} trials a minute (goal 250)")
    print(
        f"memory: {samples.memory[0]:.1f} MB at first, {samples.memory[-1]:.1f} MB at last, {grown:+.1f} MB after the 100th"
    )
    raise SystemExit(0 if rate >= 250 and grown < 10 else 1)


if __name__ == "__main__":
    main()
