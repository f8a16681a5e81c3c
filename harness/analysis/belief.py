"""What the trials so far make one believe of each lock strategy. It decides what to run next, never what is true.

Hypotheses: every set of strategies that can be the safe one (`Order.safe_sets`) × the rate at which the unsafe ones fail
× the *arm* (scenario and schedule) in which they do so most. Arms are kept apart: quiet trials under one schedule say
little of another. Prior: each *answer* (the cheapest safe strategy, or that none is safe) has the same chance unless told
otherwise, shared equally by the sets that have this answer; arms have equal chances; rates are a grid from `p_min` up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.order import Order

RATES = (0.97, 0.5, 0.2, 0.1)
"""Failure rates that are thought possible besides `p_min`: nearly every trial, down to one in ten."""

RARE_WEIGHT = 0.2
"""Prior weight of the rate `p_min`; the others share the rest."""

ELSEWHERE = 0.25
"""In other arms than the worst one an unsafe strategy is thought to fail at this part of its rate."""

Counts = tuple[tuple[str, int, int, int], ...]
"""(strategy, number of the arm, failures, trials without), for each pair that was tried."""


@dataclass(frozen=True)
class Opinion:
    """Chances. `unsafe`: by strategy; `answer`: by strategy, "" for none safe; `rate`: that of the unsafe ones, expected.

    By (strategy, arm): `fails`, that its next trial does, and `tells`, how much that trial tells of the answer, in bits
    (their mutual information).
    """

    unsafe: Mapping[str, float]
    answer: Mapping[str, float]
    rate: float
    fails: Mapping[tuple[str, int], float]
    tells: Mapping[tuple[str, int], float]


class Belief:
    """Pure: the opinion depends on the counts alone, and each is worked out once.

    `prior`: answer → weight, "" for "none is safe"; those it leaves out have weight 1. Raises ValueError when it rules
    out that none is safe: no failure could contradict that.
    """

    def __init__(self, order: Order, *, p_min: float, arms: int = 1, prior: Mapping[str, float] | None = None) -> None:
        self._order = order
        self._arms = arms
        self._prior = dict(prior or {})
        if self._prior.get("", 1.0) <= 0:
            raise ValueError('a prior has to leave a chance to "", that no strategy is safe')
        rates = [rate for rate in RATES if rate > p_min]
        weights = [(1 - RARE_WEIGHT) / len(rates)] * len(rates) + [RARE_WEIGHT] if rates else [1.0]
        self._rates = [*rates, p_min]
        self._log_weights = [math.log(weight) for weight in weights]
        self._sets = order.safe_sets
        self._outside = [[name for name in order.names if name not in members] for members in self._sets]
        self._known: dict[tuple[Counts, tuple[str, ...]], Opinion] = {}

    def opinion(self, counts: Counts, cheapest_first: Sequence[str]) -> Opinion:
        """The chances after these counts, when this is the order of cost."""
        key = (counts, tuple(cheapest_first))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._work_out(counts, key[1])
        return found

    def _work_out(self, counts: Counts, cheapest_first: tuple[str, ...]) -> Opinion:
        answers = [next((name for name in cheapest_first if name in members), "") for members in self._sets]
        shares = {answer: answers.count(answer) for answer in answers}
        failed = {strategy for strategy, _, failures, _ in counts if failures}
        evidence = self._evidence(counts)
        logs: list[tuple[float, int, int]] = []
        for index, members in enumerate(self._sets):
            prior = self._prior.get(answers[index], 1.0) / shares[answers[index]]
            if prior <= 0 or members & failed:
                continue
            for cell in range(len(self._rates) * self._arms):
                said = sum(evidence[name][cell] for name in self._outside[index] if name in evidence)
                logs.append((math.log(prior) + self._log_weights[cell // self._arms] + said, index, cell))
        return self._sum_up(logs, answers)

    def _evidence(self, counts: Counts) -> dict[str, list[float]]:
        """Strategy → log-likelihood of its counts if it is unsafe, for each rate × worst arm."""
        evidence: dict[str, list[float]] = {}
        for strategy, arm, failures, quiet in counts:
            cells = evidence.setdefault(strategy, [0.0] * (len(self._rates) * self._arms))
            for at, rate in enumerate(self._rates):
                for worst in range(self._arms):
                    here = rate if worst == arm else rate * ELSEWHERE
                    cells[at * self._arms + worst] += failures * math.log(here) + quiet * math.log1p(-here)
        return evidence

    def _sum_up(self, logs: list[tuple[float, int, int]], answers: list[str]) -> Opinion:
        most = max(value for value, _, _ in logs)  # the set in which none is safe is never ruled out
        by_set: dict[int, float] = {}
        failing: dict[int, list[float]] = {}  # set → for each arm, its weight × the chance of a failure there
        mean_rate = 0.0
        for value, index, cell in logs:
            weight = math.exp(value - most)
            at, worst = divmod(cell, self._arms)
            by_set[index] = by_set.get(index, 0.0) + weight
            mean_rate += weight * self._rates[at]
            here = failing.setdefault(index, [0.0] * self._arms)
            for arm in range(self._arms):
                here[arm] += weight * self._rates[at] * (1.0 if arm == worst else ELSEWHERE)
        total = sum(by_set.values())
        answer = dict.fromkeys(answers, 0.0)
        unsafe = dict.fromkeys(self._order.names, 0.0)
        pairs = [(name, arm) for name in self._order.names for arm in range(self._arms)]
        fails = {pair: dict.fromkeys(answers, 0.0) for pair in pairs}
        for index, weight in by_set.items():
            answer[answers[index]] += weight / total
            for name in self._outside[index]:
                unsafe[name] += weight / total
                for arm, chance in enumerate(failing[index]):
                    fails[name, arm][answers[index]] += chance / total
        return Opinion(
            unsafe,
            answer,
            mean_rate / total,
            {pair: sum(parts.values()) for pair, parts in fails.items()},
            {pair: _mutual_information(parts, answer) for pair, parts in fails.items()},
        )


def _mutual_information(fails: Mapping[str, float], answer: Mapping[str, float]) -> float:
    """Between a trial's failing and the answer; `fails` are the chances of failing with each answer, jointly."""
    known = sum(chance * _entropy(fails[name] / chance) for name, chance in answer.items() if chance > 0)
    return max(0.0, _entropy(sum(fails.values())) - known)


def _entropy(chance: float) -> float:
    if not 0 < chance < 1:
        return 0.0
    return -chance * math.log2(chance) - (1 - chance) * math.log2(1 - chance)
