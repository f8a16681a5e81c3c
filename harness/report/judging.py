"""A run's scenarios against the expectations of its matrix."""

from __future__ import annotations

import dataclasses

from harness.analysis.summary import RunSummary
from harness.core.expectations import Expectation
from harness.core.matrix import Judgement, Matrix, judge


def judge_run(matrix: Matrix, summary: RunSummary, torch: str, repeats: int) -> dict[str, list[Judgement]]:
    """Judgements by scenario id; scenarios that the matrix does not name are not judged.

    What must happen may still happen in trials that are missing: a scenario with fewer than `repeats` trials, or an
    interrupted one, is only held to what is permitted.
    """
    known = {scenario.id: scenario for scenario in matrix.scenarios}
    judged = {}
    for item in summary.scenarios:
        if item.id not in known:
            continue
        whole = item.trials >= repeats and "interrupted" not in item.outcomes
        expectations = [
            expectation if whole or not expectation.must else _as_permission(expectation)
            for expectation in matrix.expectations
        ]
        judged[item.id] = judge(known[item.id], item.labels, torch, expectations)
    return judged


def _as_permission(expectation: Expectation) -> Expectation:
    return dataclasses.replace(expectation, must=(), may=expectation.must)
