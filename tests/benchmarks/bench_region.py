"""Nanoseconds an uncontended, warm region costs, by strategy: `python tests/benchmarks/bench_region.py`.

The goal is at most 2000 ns for each. Best of many short rounds: what is above the best is other programs' doing.
A bare `threading.RLock` and an empty `with` are measured along: what any lock costs on the machine.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from harness.locks import REGIONS, STRATEGIES, Strategy, make_strategy

LOOPS, ROUNDS, GOAL_NS = 2000, 60, 2000
NAMES = (*STRATEGIES, "each:mask+forward", "span:mask..loss")
KEY = (140_000_000, "cuda:0", "bfloat16", (1, 3072, 512), True, False)


def nanoseconds(enter: Callable[[], AbstractContextManager[object]]) -> float:
    """Best time of one pass through the context manager that `enter` makes, the call included."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(LOOPS):
            with enter():
                pass
        best = min(best, (time.perf_counter_ns() - start) / LOOPS)
    return best


def warm_up(strategy: Strategy) -> None:
    """One step of the only worker."""
    with strategy.region("step", "w", KEY):
        for name in ("mask", "forward"):
            with strategy.region(name, "w"):
                pass
        with strategy.region("forward", "w"), strategy.region("attention", "w"):
            pass
        for name in ("loss", "backward"):
            with strategy.region(name, "w"):
                pass


def entering(strategy: Strategy, region: str) -> Callable[[], AbstractContextManager[object]]:
    """What a training loop calls for one pass through `region`."""
    return lambda: strategy.region(region, "w", KEY)


def main() -> int:
    """Prints the table; 1 if a strategy misses the goal."""
    rlock, empty = threading.RLock(), nullcontext()
    print(f"{'empty with':<18} {nanoseconds(lambda: empty):6.0f} ns")
    print(f"{'threading.RLock':<18} {nanoseconds(lambda: rlock):6.0f} ns")
    print(f"{'strategy':<18} {'owner':<7} {'step':>6} {'attention':>10} {'slowest':>8}   ns a region, warm")
    missed = False
    for name in NAMES:
        for owner in ("worker", "thread"):
            strategy = make_strategy(name, workers=["w"], owner=owner)
            warm_up(strategy)

            costs = {region: nanoseconds(entering(strategy, region)) for region in REGIONS}
            slowest = max(costs.values())
            missed |= slowest > GOAL_NS
            print(f"{name:<18} {owner:<7} {costs['step']:6.0f} {costs['attention']:10.0f} {slowest:8.0f}")
    print(f"goal {GOAL_NS} ns: {'missed' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
