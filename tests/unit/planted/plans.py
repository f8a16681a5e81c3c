"""A plan for each planted program, with its counterfactual."""

from __future__ import annotations

from typing import Any

from harness.core.plan import Counterfactual, Gate, Plan, Step

from . import programs

_TWO = {"A": "worker", "B": "worker"}


def _after(point: str, last: str) -> Counterfactual:
    """B comes to `point` only when A is through: it has come to `last`, and what follows."""
    return Counterfactual(
        gates=[Gate("!A", point, until="A is through")],
        steps=[Step("A", point), Step("A", last, name="A is through"), Step("B", point)],
    )


PLANS: dict[type[Any], Plan] = {
    programs.CheckThenAct: Plan(
        _TWO,
        steps=[Step("A", "mark.check"), Step("B", "mark.check"), Step("A", "mark.act")],
        counterfactual=_after("mark.check", "mark.act"),
    ),
    programs.LostUpdate: Plan(
        _TWO,
        steps=[Step("A", "mark.read"), Step("B", "mark.read"), Step("A", "mark.write")],
        counterfactual=_after("mark.read", "mark.write"),
    ),
    programs.LockInversion: Plan(
        _TWO,
        steps=[Step("A", "mark.first"), Step("B", "mark.second"), Step("A", "mark.second")],
        counterfactual=_after("mark.first", "mark.second"),
    ),
    programs.Aba: Plan(
        _TWO,
        steps=[Step("A", "mark.read"), Step("B", "mark.pop"), Step("B", "mark.push"), Step("A", "mark.swap")],
        counterfactual=Counterfactual(
            gates=[Gate("B", "mark.pop", until="A is through")],
            steps=[Step("A", "mark.read"), Step("A", "mark.swap", name="A is through"), Step("B", "mark.pop")],
        ),
    ),
    programs.ThreeThreads: Plan(
        {"P": "worker-0", "Q": "worker-1", "R": "worker-2"},
        steps=[Step("P", "mark.p1"), Step("Q", "mark.q"), Step("R", "mark.r"), Step("P", "mark.p2")],
        counterfactual=Counterfactual(
            steps=[Step("P", "mark.p1"), Step("R", "mark.r"), Step("Q", "mark.q"), Step("P", "mark.p2")],
        ),
    ),
}

ON_CORRECT = Plan(_TWO, steps=[Step("A", "mark.read"), Step("B", "mark.read"), Step("A", "mark.write")])
"""The lost update's plan, put to the program that holds a lock."""
