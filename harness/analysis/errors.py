"""Errors of many trials, grouped by fingerprint, with one witness each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ErrorGroup:
    """Errors with one fingerprint. `witness` is the error, as its row has it, that shows most: one that names
    a tracer.

    `count` counts errors, `trials` the trials that had one, `consequences` how many of them followed from
    another.
    """

    fingerprint: str
    label: str
    type: str
    message: str
    count: int = 0
    trials: int = 0
    consequences: int = 0
    scenarios: dict[str, int] = field(default_factory=dict)
    witness: Mapping[str, Any] = field(default_factory=dict)
    witness_trial: str = ""

    @property
    def only_consequences(self) -> bool:
        """Whether each of them followed from another error."""
        return self.consequences == self.count

    @property
    def collision(self) -> tuple[Mapping[str, Any], ...]:
        """The threads that were inside a trace when the witness was raised."""
        return tuple(self.witness.get("tracers") or ())


def add_errors(groups: dict[str, ErrorGroup], row: Mapping[str, Any]) -> None:
    """Count a row's errors into `groups`, which maps fingerprints to groups."""
    seen: set[str] = set()
    for error in row.get("errors") or ():
        fingerprint = str(error["fingerprint"])
        group = groups.get(fingerprint)
        if group is None:
            group = groups[fingerprint] = ErrorGroup(
                fingerprint, str(error["label"]), str(error["type"]), str(error["message"])
            )
        group.count += 1
        group.consequences += bool(error.get("consequence"))
        if fingerprint not in seen:
            seen.add(fingerprint)
            group.trials += 1
            group.scenarios[row["scenario_id"]] = group.scenarios.get(row["scenario_id"], 0) + 1
        if not group.witness or (error.get("tracers") and not group.collision):
            group.witness, group.witness_trial = error, str(row["trial"])
