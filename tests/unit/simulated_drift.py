"""Losses of runs that drift apart by themselves, for the rule that calls a trial `numerics` or does not. Seeds are fixed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from harness.analysis.drift import REFERENCES
from harness.analysis.numerics import differences

MODELS = ("independent", "correlated", "walk", "amplified")
STEPS = 22
TRIALS = 59
BROKEN = 6
"""Of a strategy's trials that go wrong, one in ten."""
WRONG = 1.5
DTYPE = "bfloat16"

Run = dict[str, dict[str, Any]]


def a_run(model: str, drafters: int, drift: float, random_: random.Random) -> Run:
    """`drift`: standard deviation of a loss from what all runs share, relative; at the last step where it grows."""
    workers: Run = {}
    for number in range(drafters):
        off, losses = 0.0, []
        for _ in range(STEPS):
            draw = random_.gauss(0, drift)
            off = {
                "independent": draw,
                "correlated": 0.7 * off + 0.7 * draw,
                "walk": off + draw / math.sqrt(STEPS),
                "amplified": 1.25 * off + 2 * draw * 1.25**-STEPS,
            }[model]
            losses.append(4.0 * (1 + off))
        workers[f"drafter-{number}"] = {"role": "drafter", "losses": losses}
    return workers


def broken(run: Run, random_: random.Random) -> Run:
    """The first drafter's losses are 50 % too large from some step on."""
    at = random_.randrange(STEPS)
    first = run["drafter-0"]
    losses = [loss * (WRONG if step >= at else 1) for step, loss in enumerate(first["losses"])]
    return {**run, "drafter-0": {**first, "losses": losses}}


@dataclass
class Found:
    """In percent: bisections in which a healthy strategy is unsafe by two and by all references; broken trials that are found,
    and bisections with `BROKEN` of them in which one is.
    """

    by_two: float
    by_all: float
    broken_trials: float
    broken_strategies: float


def simulate(model: str, drafters: int, drift: float, bisections: int) -> Found:
    """All trials of a bisection share the references."""
    random_ = random.Random(f"{model} {drafters} {drift}")
    by_two = by_all = trials = strategies = 0

    def another() -> Run:
        return a_run(model, drafters, drift, random_)

    for _ in range(bisections):
        first, *others = (another() for _ in range(REFERENCES))
        healthy = (another() for _ in range(TRIALS))
        two = [trial for trial in healthy if differences(trial, first, dtype=DTYPE, others=others[:1])]
        by_two += bool(two)
        by_all += any(_stands(trial, first, others) for trial in two)
        wrong = sum(_stands(broken(another(), random_), first, others) for _ in range(BROKEN))
        trials += wrong
        strategies += wrong > 0
    percent = 100 / bisections
    return Found(by_two * percent, by_all * percent, trials * percent / BROKEN, strategies * percent)


def _stands(trial: Run, first: Run, others: list[Run]) -> bool:
    return any(one.stands for one in differences(trial, first, dtype=DTYPE, others=others))
