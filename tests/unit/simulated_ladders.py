"""Bisections of ladders that fail at a known rate, by the thousand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.belief import Belief
from harness.analysis.bisector import Bisector, Settings
from harness.analysis.ladder import Result, Run
from harness.analysis.order import Order, chain
from harness.analysis.plan_questions import Ask
from harness.analysis.verdicts import Answer

NAMES = ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")
LADDER = chain(NAMES)


@dataclass(frozen=True)
class Summary:
    """Of many bisections; rates in per cent."""

    runs: int
    mean_trials: float
    trials_95: int
    unsafe_called_safe: float
    cheapest: float
    costlier: float
    nothing_to_fix: float
    none_safe: float


def bisect(
    order: Order, safe: frozenset[str], rate: float, settings: Settings, dice: random.Random, belief: Belief
) -> Answer:
    """One bisection in which each strategy that is not safe fails at this rate."""
    bisector = Bisector(order, settings, belief=belief)
    while True:
        step = bisector.next()
        if isinstance(step, Answer):
            return step
        assert isinstance(step, Run)
        assert not isinstance(step, Ask)
        fails = step.strategy not in safe and dice.random() < rate
        bisector.record(Result(step, "failed" if fails else "ok"))


def simulate(
    rate: float,
    firsts: Sequence[int],
    runs: int,
    *,
    seed: int,
    settings: Settings = Settings(),  # noqa: B008
    order: Order = LADDER,
) -> Summary:
    """Bisect so many ladders; in each, `names[first:]` is safe, `first` going round `firsts`."""
    dice = random.Random(seed)
    belief = Belief(order, p_min=settings.p_min)
    trials: list[int] = []
    wrong = cheapest = costlier = nothing = none_safe = 0
    for number in range(runs):
        first = firsts[number % len(firsts)]
        safe = frozenset(order.names[first:])
        answer = bisect(order, safe, rate, settings, dice, belief)
        trials.append(answer.trials_total)
        truth = order.names[first] if safe else None
        wrong += answer.answer is not None and answer.answer not in safe
        cheapest += answer.answer == truth
        costlier += answer.answer in safe and answer.answer != truth
        nothing += answer.conclusion == "nothing to fix"
        none_safe += answer.verdict == "unsafe"
    percent = 100 / runs
    return Summary(
        runs,
        sum(trials) / runs,
        sorted(trials)[int(0.95 * runs)],
        wrong * percent,
        cheapest * percent,
        costlier * percent,
        nothing * percent,
        none_safe * percent,
    )
