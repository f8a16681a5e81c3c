"""The calibration of `numerics` where runs drift by themselves: simulated bisections, the table of harness/analysis/drift.py.

    python -m tests.benchmarks.numerics_alarms [BISECTIONS]

Needs no torch and no machine of any kind: the numbers are the same everywhere (seeds are fixed).
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from simulated_drift import MODELS, simulate

DRAFTERS = (1, 2, 3)
DRIFTS = (0.02, 0.05)
HEAD = (
    "| model | drafters | drift | healthy strategy unsafe: by two references | by all "
    "| a trial 50 % off is found | a strategy of which one in ten is so |"
)


def main() -> None:
    """Print the table."""
    bisections = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    cells = [(model, drafters, drift) for model in MODELS for drafters in DRAFTERS for drift in DRIFTS]
    print(f"{bisections} bisections a row\n\n{HEAD}\n{'| --- ' * 7}|", flush=True)
    with ProcessPoolExecutor() as pool:
        columns = zip(*cells, strict=True)
        for cell, found in zip(cells, pool.map(simulate, *columns, [bisections] * len(cells)), strict=True):
            model, drafters, drift = cell
            print(
                f"| {model} | {drafters} | {drift:.0%} | {found.by_two:.1f} % | {found.by_all:.1f} % "
                f"| {found.broken_trials:.0f} % | {found.broken_strategies:.0f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
