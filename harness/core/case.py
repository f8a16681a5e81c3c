"""One thing to reproduce: a program in a scenario, the plan, and how its effect shows.

A hazard of the catalogue gives one for its small program and, where it can occur there, one for the pipeline; what
`harness minimise` writes for an unknown race is one too, as a JSON file that `harness reproduce` reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.core.endings import Effect
from harness.core.errors import UserError, show
from harness.core.plan import Plan, PlanError, without_doubles
from harness.core.scenario import Scenario

SCHEMA = 1


@dataclass(frozen=True)
class Case:
    """`scenario`: without its schedule, which is the plan. `settings`: the workload's table, as in `[pipeline]`."""

    name: str
    title: str
    scenario: Scenario
    plan: Plan
    effect: Effect
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        default = Scenario()
        axes = {axis: value for axis, value in self.scenario.to_dict().items() if value != default.value(axis)}
        return {
            "schema": SCHEMA,
            "name": self.name,
            "title": self.title,
            "scenario": axes,
            "settings": dict(self.settings),
            "effect": self.effect.to_json(),
            "plan": self.plan.to_json(),
        }


class Reproducible(Protocol):
    """What `harness reproduce` asks of a hazard; `harness.hazards.find(id)` gives one, or raises UserError."""

    def case(self, where: str) -> Case | None:
        """For "program" (its smallest program) or "pipeline"; None where it cannot occur."""


def read_case(path: Path) -> Case:
    """A case of a file. Raises UserError (PlanError, MatrixError): it cannot be read, or says what there is not."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text, object_pairs_hook=without_doubles)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path}: no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "plan" not in document:
        raise PlanError(f"{path}: not a case to reproduce; it has schema = {SCHEMA}, a scenario, an effect and a plan")
    known = ("schema", "name", "title", "scenario", "settings", "effect", "plan")
    for key in document:
        if key not in known:
            raise PlanError(f'{path}: no key "{key}"; it takes {", ".join(known)}')
    settings = document.get("settings", {})
    if not isinstance(settings, dict):
        raise PlanError(f"{path}: settings = {show(settings)} is no table of names and values")
    try:
        return Case(
            str(document.get("name", path.stem)),
            str(document.get("title", "")),
            Scenario.from_dict(document.get("scenario", {})),
            Plan.from_json(document["plan"]),
            Effect.from_json(document.get("effect", {})),
            settings,
        )
    except UserError as error:
        raise type(error)(f"{path}: {error}") from None

