"""A verdict of each lock strategy on the hazards that people lock against, by plan, in the pipeline.

    python -m tests.soak.lock_verdicts --python ~/torch-2.11/bin/python
    python -m tests.soak.lock_verdicts --hazard compile-lock-engine-deadlock --hazard user-lock-engine-deadlock --jobs 2

Prints a Markdown table: reproduced (with its trial as witness), excluded (with the lock that stands against it), unreachable
(with the reason). Every binding of the roles is tried before a plan is called infeasible.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path

from harness.control.executors import LocalExecutor
from harness.control.reproduce import Reproduction, reproduce
from harness.hazards import find

HAZARDS = ("fx-flag-collision", "first-step-hole")
LOCKS = (
    "none",
    "per_call",
    "per_forward",
    "first_step",
    "warmup_barrier",
    "compile_gate",
    "warm_gate",
    "every_step",
    "thread_local_fx",
    "each:mask+forward",
    "span:mask..backward",
)


def verdict(found: Reproduction) -> str:
    """One cell of the table."""
    reason = found.ending.reason
    return found.ending.name + (f": {reason}" if reason else "") + f" ({found.tried} bindings)"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=None)
    parser.add_argument("--hazard", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    executor = LocalExecutor(python=options.python, jobs=options.jobs)
    folder = Path(tempfile.mkdtemp(prefix="lock-verdicts-"))
    try:
        for hazard in options.hazard or HAZARDS:
            case = find(hazard).case("pipeline")
            assert case is not None
            print(f"\n| `{hazard}` under | |\n| --- | --- |")
            for lock, dynamo in (*((lock, "default") for lock in LOCKS), ("none", "early_lowering")):
                own = folder / f"{hazard}-{lock.replace(':', '-')}-{dynamo}"
                own.mkdir()
                scenario = case.scenario.replace(lock=lock, dynamo=dynamo)
                one = dataclasses.replace(case, scenario=scenario)
                name = f"`{lock}`" + (f", `{dynamo}`" if dynamo != "default" else "")
                print(f"| {name} | {verdict(reproduce(one, executor, own, times=1, note=lambda _: None))} |", flush=True)
    finally:
        executor.close()


if __name__ == "__main__":
    main()
