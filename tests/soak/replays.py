"""Records trials of the pipeline under seeded delays and replays each: how many come back in the same order?

    python -m tests.soak.replays [--count 50] [--first-seed 0] [--python PY]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from harness.control.executors import LocalExecutor
from harness.control.replay import read_trial, replay
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--python", default=None)
    options = parser.parse_args()
    executor = LocalExecutor(python=options.python)
    folder = Path(tempfile.mkdtemp(prefix="replays-"))
    same = mended = outcome = events = 0
    try:
        for seed in range(options.first_seed, options.first_seed + options.count):
            own = folder / f"{seed}-recorded"
            own.mkdir()
            scenario = Scenario(drafters=2, steps=1, schedule=f"delays:{seed}")
            executor.run([TrialRequest(own.name, scenario, 0, own)], lambda _: None, lambda _: None)
            found = replay(read_trial(own), executor, folder / f"{seed}-replayed")
            same += found.same_order
            mended += found.same_order and found.repairs > 0
            outcome += found.same_outcome
            events += len(found.old.recording.events)
            if not found.same_order:
                print(f"seed {seed}: {found.difference}", flush=True)
    finally:
        executor.close()
    print(f"{options.count} recordings, {events} events: {same} identical orders ({mended} after mending), {outcome} outcomes")


if __name__ == "__main__":
    main()
