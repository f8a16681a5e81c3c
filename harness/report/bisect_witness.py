"""What settled a strategy in a bisection, for the page of its folder: the message or the interleaving, and where to read on.

Of `bisect.json`, which is read as anything else in a folder that was sent: what is not as it should be is left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.report.text import clip, one_line
from harness.report.witness import interleaving

MOST_EVENTS = 200
LONGEST_FIELD = 200
LONGEST_MESSAGE = 2_000
_TEXTS = ("seat", "role", "event", "point", "info", "name", "torch", "source")


@dataclass(frozen=True)
class WitnessView:
    """`message`: of the error, or who waits for whom; `against`: what other threads were in; `steps`: the order that a plan
    brought about, a line each as `witness.interleaving` has them; `command`: explains the trial. Each may be empty."""

    message: str
    against: str
    steps: str
    command: str


def witness_view(witness: Mapping[str, Any], run_dir: str) -> WitnessView | None:
    """None where there is nothing to show. `run_dir`: the run folder as it is to be typed."""
    message = witness.get("message")
    trial = witness.get("trial")
    view = WitnessView(
        clip(message, LONGEST_MESSAGE) if isinstance(message, str) else "",
        _against(witness.get("against")),
        "\n".join(_steps(witness.get("steps"))),
        f"harness explain {shlex.quote(one_line(f'{run_dir}/{trial}/', 2_000))}" if isinstance(trial, str) and trial else "",
    )
    return view if any((view.message, view.against, view.steps, view.command)) else None


def _against(others: object) -> str:
    found = [one for one in others if isinstance(one, dict)][:MOST_EVENTS] if isinstance(others, list) else []
    pairs = [(_text(one.get("worker")), _text(one.get("region"))) for one in found]
    return ", ".join(f"{worker or '?'} in {region or '?'}" for worker, region in pairs)


def _steps(steps: object) -> list[str]:
    """All of them or none: an interleaving with a hole would tell another story."""
    if not isinstance(steps, list) or not all(isinstance(event, dict) for event in steps):
        return []
    cleaned = []
    for event in steps[-MOST_EVENTS:]:
        attempt = event.get("attempt", 0)
        texts = {name: _text(event.get(name)) for name in _TEXTS}
        if not isinstance(attempt, int) or not all(texts[name] for name in ("seat", "event", "point")):
            return []
        cleaned.append({**texts, "attempt": attempt})
    return interleaving(cleaned)


def _text(value: object) -> str:
    return one_line(value, LONGEST_FIELD) if isinstance(value, str) else ""
