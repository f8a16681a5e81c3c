"""Every planted hang as a program under `harness watch`: named, and when.

    python -m tests.soak.watch_hangs [--timeout 3] [--jobs 2] [--repeats 1]

The programs and what has to be named are those of `tests/integration/planted_hangs.py`. Prints a Markdown table; exit 1
where one was not named within the hang timeout + 5 s, or got another label.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.benchmarks.machine import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))  # its modules import each other by name
from planted_hangs import IN_TIME_S, PLANTED, Named, watch_planted


def main() -> None:
    """Print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float, default=3.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    limit_s = options.timeout + IN_TIME_S
    found: dict[str, list[Named]] = {planted.name: [] for planted in PLANTED}
    with tempfile.TemporaryDirectory() as base, ThreadPoolExecutor(options.jobs) as pool:
        for repeat in range(options.repeats):
            folders = [Path(base, str(repeat), planted.name) for planted in PLANTED]
            for folder in folders:
                folder.mkdir(parents=True)
            named = pool.map(lambda pair: watch_planted(*pair, options.timeout), zip(PLANTED, folders, strict=True))
            for planted, one in zip(PLANTED, named, strict=True):
                found[planted.name].append(one)
    print(machine())
    print(f"hang timeout {options.timeout:g} s, {options.jobs} at a time; named within {limit_s:g} s?")
    print("| planted | label | named | after, at most (s) |\n| --- | --- | --- | --- |")
    good = 0
    for planted in PLANTED:
        named_in = [one.after_s for one in found[planted.name] if one.after_s is not None]
        labels = {label for one in found[planted.name] for label in one.row["outcomes"]}
        latest = f"{max(named_in):.1f}" if named_in else "never"
        count = sum(after_s <= limit_s for after_s in named_in)
        print(f"| {planted.name} | {', '.join(sorted(labels))} | {count}/{options.repeats} | {latest} |")
        good += count == options.repeats and labels == {planted.label}
    print(f"{good} of {len(PLANTED)}")
    raise SystemExit(0 if good == len(PLANTED) else 1)


if __name__ == "__main__":
    main()
