"""How a trial of a plan ended: what its schedule says of the order, and what its row shows of the effect, put together.

    effect = Effect(labels=("fx_error",))                 # an outcome label of the trial, or
    effect = Effect(fact="effect")                        # what the program told: ctx.fact("", "effect", True)
    ending = judge(plan, effect, row)                     # Ending("reproduced", "")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core.errors import nearest, show
from harness.core.outcome import FAILURES, INCOMPLETE, SKIPPED
from harness.core.plan import (
    ENDINGS,
    EXCLUDED,
    HARMLESS,
    ORDER_DONE,
    REPRODUCED,
    UNDECIDED,
    UNREACHABLE,
    Plan,
    PlanError,
)

CUT_SHORT = ("deadlock", "hang", "cuda_fault", "crash")
"""After these no thread of the process gets on as it would have: what it had yet to show, it could not."""


@dataclass(frozen=True)
class Effect:
    """How a hazard's effect shows in the row of a trial; any one of these is enough.

    labels   outcome labels
    fact     the name of a fact of the trial as a whole that is then true (`ctx.fact("", NAME, True)`)
    text     labels count only with an error, or a reason, that has this text in it; "" for any

    Raises PlanError: no such label, or neither label nor fact.
    """

    labels: tuple[str, ...] = ()
    fact: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        if not (self.labels or self.fact):
            raise PlanError("effect: it names neither an outcome label nor a fact, so nothing could show it")
        for label in self.labels:
            if label not in FAILURES:
                raise PlanError(f'effect: no outcome is called "{label}"{nearest(label, FAILURES)}')

    def seen(self, row: Mapping[str, Any]) -> bool:
        """Whether the row of a trial shows it."""
        if self.fact and row.get("facts", {}).get(self.fact):
            return True
        if not set(self.labels) & set(row["outcomes"]):
            return False
        if not self.text:
            return True
        texts = [error["message"] for error in row.get("errors", ()) if error["label"] in self.labels]
        texts += [problem["text"] for problem in row.get("problems", ()) if problem["label"] in self.labels]
        return any(self.text in text for text in [*texts, row.get("reason", "")])

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"labels": list(self.labels), "fact": self.fact, "text": self.text}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Effect:
        """Back from `to_json`. Raises PlanError for an unknown key, or a value of another kind."""
        if not isinstance(document, Mapping):
            raise PlanError(f"effect = {show(document)} is no table; it takes labels, fact, text")
        for key in document:
            if key not in ("labels", "fact", "text"):
                raise PlanError(f'effect: no key "{key}"; it takes labels, fact, text')
        labels = document.get("labels", [])
        if not isinstance(labels, list | tuple) or not all(isinstance(label, str) for label in labels):
            raise PlanError(f"effect: labels = {show(labels)} is no list of outcome labels")
        texts = [document.get(key, "") for key in ("fact", "text")]
        for key, text in zip(("fact", "text"), texts, strict=True):
            if not isinstance(text, str):
                raise PlanError(f"effect: {key} = {show(text)} is no text")
        return cls(tuple(labels), *texts)


@dataclass(frozen=True)
class Ending:
    """One of the five, why, and what the schedule told (`bindings`, `lock`, `holder`, `witness`, `attempts`, …)."""

    name: str
    reason: str = ""
    schedule: Mapping[str, Any] = field(default_factory=dict)

    @property
    def infeasible(self) -> bool:
        """The plan cannot be carried out here."""
        return self.name in (EXCLUDED, UNREACHABLE)


def judge(plan: Plan, effect: Effect, row: Mapping[str, Any]) -> Ending:
    """The ending of one trial, from its row. A plan without steps has no order that could fail."""
    told: Mapping[str, Any] = row.get("schedule") or {}
    seen = effect.seen(row)
    order = ORDER_DONE if not plan.steps else str(told.get("order", ""))
    if seen and order == ORDER_DONE:
        return Ending(REPRODUCED, "", told)
    if seen:
        return Ending(UNDECIDED, "the effect came, but not by the plan's order: " + str(told.get("reason", "")), told)
    if row["outcome"] in (*INCOMPLETE, SKIPPED):
        return Ending(UNDECIDED, f"{row['outcome']}: {row.get('reason', '')}", told)
    if order == ORDER_DONE and set(CUT_SHORT) & set(row["outcomes"]):
        why = f"the order came about, and before its effect could show the trial ended: {row['outcome']}"
        return Ending(UNDECIDED, f"{why}, {row['reason']}" if row.get("reason") else why, told)
    if order == ORDER_DONE:
        return Ending(HARMLESS, "", told)
    if order in ENDINGS:
        return Ending(order, str(told.get("reason", "")), told)
    return Ending(UNDECIDED, f"the trial ended as {row['outcome']} and said nothing of its plan", told)


def combine(endings: list[Ending]) -> Ending:
    """What several attempts at one plan (bindings, occurrences) say together: one that reproduced it is enough.

    Infeasible only if all are. Then the one that came furthest says it: a binding whose threads met in the wrong order
    (the role that must be warm first found the other in the lock) was stopped before the hazard's own order began, and
    names no reason for that. Of equals, excluded before unreachable.
    """
    for name in (REPRODUCED, UNDECIDED, HARMLESS):
        for ending in endings:
            if ending.name == name:
                return ending
    if not endings:
        return Ending(UNDECIDED, "nothing was tried")
    return max(endings, key=lambda ending: (_steps_done(ending), ending.name == EXCLUDED))


def _steps_done(ending: Ending) -> int:
    """The most steps of the plan that an attempt made which ended so."""
    attempts = ending.schedule.get("attempts", ())
    return max((int(attempt["steps"]) for attempt in attempts if attempt["ending"] == ending.name), default=0)
