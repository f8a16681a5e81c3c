"""Deadlocks, hangs and crashes of many trials, which no exception tells of, grouped by what was waited for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STUCK = ("deadlock", "hang", "crash")
"""Outcomes that no exception tells about."""

MOST_KINDS = 100
LONGEST_KEY = 2_000

_EDGE = re.compile(r"(?P<waiter>.+?) waits for (?P<what>.+), held by .+")
_ENDED = re.compile(r"(?<=, after ).+(?= had ended$)")  # of a crash (harness.control.rows)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


@dataclass
class StuckGroup:
    """Trials that ended with this label and the same kinds of wait. `reason`, `trial`: of the first of them.

    `trials` counts them, `scenarios` by the id of their scenario.
    """

    label: str
    reason: str
    trial: str
    trials: int = 0
    scenarios: dict[str, int] = field(default_factory=dict)


def add_stuck(groups: dict[str, StuckGroup], row: Mapping[str, Any]) -> None:
    """Count a row into `groups`, of which there are at most `MOST_KINDS` and one for what is left over."""
    for label in dict.fromkeys(row["outcomes"]):
        if label not in STUCK:
            continue
        reason = str(row.get("reason") or "")
        key = f"{label}: {kinds_of_wait(reason)}"
        if key not in groups and len(groups) >= MOST_KINDS:
            key, reason = f"{label}: others", "other reasons, see the report"
        group = groups.setdefault(key, StuckGroup(label, reason, str(row["trial"])))
        group.trials += 1
        group.scenarios[row["scenario_id"]] = group.scenarios.get(row["scenario_id"], 0) + 1


def whoever_ended(reason: str) -> str:
    """The same for two crashes that differ in whose threads had ended by then, as long as somebody's had."""
    return _ENDED.sub("N", reason)


def kinds_of_wait(reason: str) -> str:
    """The same for two reasons that differ in who waits or had ended, where a cycle begins, or in numbers."""
    edges = [_EDGE.fullmatch(part) for part in reason.split("; ")]
    found = [edge["what"] for edge in edges if edge is not None]
    same = " | ".join(sorted(found)) if found and len(found) == len(edges) else whoever_ended(" ".join(reason.split()))
    return _NUMBER.sub("N", same[:LONGEST_KEY])
