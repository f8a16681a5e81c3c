"""The calibration of `harness bisect locks`: simulated ladders by failure rate, as the table of docs/bisect.md.

    python -m tests.benchmarks.bisect_table [RUNS]

Needs no torch and no machine of any kind: the numbers are the same everywhere (seeds are fixed).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from simulated_ladders import Summary, simulate

from harness.analysis.bisector import Settings

RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
HEAD = (
    "| failure rate | trials, mean | trials, 95 % of runs | unsafe called safe "
    "| answer is the cheapest safe one | a costlier safe one |"
)


def row(name: str, found: Summary) -> str:
    """One line of the table."""
    return (
        f"| {name} | {found.mean_trials:.1f} | {found.trials_95} | {found.unsafe_called_safe:.1f} % "
        f"| {found.cheapest:.1f} % | {found.costlier:.1f} % |"
    )


def main() -> None:
    """Print both tables."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    for thorough in (False, True):
        settings = Settings(thorough=thorough)
        print(f"\n{'--thorough' if thorough else 'default'}, {runs} runs a row\n\n{HEAD}\n{'| --- ' * 6}|")
        for rate in RATES:
            print(row(f"{100 * rate:.0f} %", simulate(rate, range(1, 8), runs, seed=20, settings=settings)), flush=True)
        nothing = simulate(0.0, [0], 20, seed=20, settings=settings)
        print(f"\nnothing fails: {nothing.mean_trials:.0f} trials, nothing to fix in {nothing.nothing_to_fix:.0f} %")
        for rate in (0.2, 0.05):
            none = simulate(rate, [8], runs, seed=20, settings=settings)
            print(f"nothing is safe, {100 * rate:.0f} %: {none.mean_trials:.1f} trials, said in {none.none_safe:.1f} %")


if __name__ == "__main__":
    main()
