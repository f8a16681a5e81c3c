"""`harness --help`: wall seconds from start to end, and what it loads. Goal: ≤ 0.5 s on a quiet machine."""

from __future__ import annotations

import subprocess
import sys
import time

from .machine import machine, spread

HEAVY = ("torch", "pandas", "scipy", "plotly")


def main() -> None:
    """Print the spread of ten starts, after two that warm the file cache."""
    command = [sys.executable, "-c", "from harness.cli import main; main()", "--help"]
    seconds = []
    for _ in range(12):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - began)
    print(machine())
    print(f"harness --help: {spread(seconds[2:])} s")


if __name__ == "__main__":
    main()
