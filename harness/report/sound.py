"""A line of results.jsonl, as it may be after years and accidents → a row that every reader can rely on, or why not.

A run folder may come from an older harness, or from an editor. What a row lacks gets the value of a row that has
nothing to say; what it has in a form that cannot be read is left out; what makes it no row at all is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.control.request import Row
from harness.core.errors import MatrixError, nearest
from harness.core.outcome import LABELS, primary
from harness.core.rowshape import ROW_SCHEMA
from harness.core.scenario import Scenario
from harness.report.text import clip

LONGEST_STACK = 64_000
LONGEST_MESSAGE = 4_000
LONGEST_NAME = 300
MOST_TRACERS = 8
MOST_EVIDENCE = 20
MOST_EVENTS = 200
MOST_ERRORS = 200
MOST_WORKERS = 1_000
_COUNTS = (
    "fx_errors",
    "dense_calls",
    "compiles",
    "errors_dropped",
    "steps_ok",
    "steps_failed",
    "steps_expected",
)
_MOST_SECONDS = 1e15  # also keeps out what is no number, and integers that no float can hold


class UnsoundError(Exception):
    """Why a line is no row that can be counted."""


class Sounder:
    """Makes rows sound. It remembers scenarios, for most rows repeat one."""

    def __init__(self) -> None:
        self._scenarios: dict[str, tuple[object, Scenario]] = {}

    def sound(self, raw: Mapping[str, Any]) -> Row:
        """The row with every field of its type and no text without a limit. Raises UnsoundError."""
        schema = raw.get("schema", ROW_SCHEMA)
        if schema != ROW_SCHEMA:
            raise UnsoundError(f"has schema {_short(schema)}; this version reads {ROW_SCHEMA}")
        scenario = self._scenario(raw)
        labels = _labels(raw)
        return {
            "trial": _name(raw.get("trial")),
            "scenario_id": scenario.id,
            "scenario": scenario.to_dict(),
            "repeat": count_of(raw.get("repeat")),
            "outcome": primary(labels),
            "outcomes": labels,
            "reason": _text(raw.get("reason"), LONGEST_MESSAGE),
            **{name: count_of(raw.get(name)) for name in _COUNTS},
            **{name: seconds_of(raw.get(name)) for name in ("startup_s", "tokens_per_s", "wall_s", "start_s")},
            "errors": [_error(error) for error in list_of(raw.get("errors"))[:MOST_ERRORS] if isinstance(error, dict)],
            "workers": {
                _name(name): worker
                for name, worker in list(dict_of(raw.get("workers")).items())[:MOST_WORKERS]
                if isinstance(worker, dict)
            },
            "probes": _texts(raw.get("probes")),
            "oracles": _texts(raw.get("oracles")),
            "locks": _sums(raw.get("locks")),
            "memory": _sums(raw.get("memory")),
            "gpu_load": _sums(raw.get("gpu_load")),
            "schedule": dict_of(raw.get("schedule")),
            "evidence": [_name(name) for name in list_of(raw.get("evidence"))[:MOST_EVIDENCE]],
            **{name: count_of(raw.get(name)) for name in ("steps_ok", "steps_failed", "steps_expected")},
            "problems": [problem for problem in list_of(raw.get("problems")) if isinstance(problem, dict)],
            "exit": dict_of(raw.get("exit")),
            "last_events": [event for event in list_of(raw.get("last_events")) if isinstance(event, dict)][-MOST_EVENTS:],
            "torch": _name(raw.get("torch")),
            "python": _name(raw.get("python")),
        }

    def _scenario(self, raw: Mapping[str, Any]) -> Scenario:
        given, key = raw.get("scenario"), str(raw.get("scenario_id"))
        known = self._scenarios.get(key)
        if known is not None and known[0] == given:
            return known[1]
        if not isinstance(given, dict):
            raise UnsoundError("names no scenario")
        try:
            scenario = Scenario.from_dict(given)
        except MatrixError as error:
            raise UnsoundError(f"has a scenario that this version does not know: {clip(str(error), 300)}") from None
        self._scenarios[key] = (given, scenario)
        return scenario


def _labels(raw: Mapping[str, Any]) -> list[str]:
    given = raw.get("outcomes", raw.get("outcome"))
    labels = [given] if isinstance(given, str) else list_of(given)
    for label in labels:
        if label not in LABELS:
            hint = nearest(label, LABELS) if isinstance(label, str) else ""
            raise UnsoundError(f"has the outcome {_short(label)}, which this version does not know{hint}")
    if not labels:
        raise UnsoundError("has no outcome")
    return [str(label) for label in labels]


def _error(raw: Mapping[str, Any]) -> dict[str, Any]:
    kind = _name(raw.get("type")) or "error"
    message = _text(raw.get("message"), LONGEST_MESSAGE)
    tracers = [tracer for tracer in list_of(raw.get("tracers")) if isinstance(tracer, dict)]
    return {
        "label": raw["label"] if raw.get("label") in LABELS else "error",
        "type": kind,
        "message": message,
        "fingerprint": _name(raw.get("fingerprint")) or f"{kind} {message[:LONGEST_NAME]}",
        **{name: _name(raw.get(name)) for name in ("worker", "thread", "region", "stage")},
        "at_s": seconds_of(raw.get("at_s")),
        "step": _step(raw),
        "traceback": _text(raw.get("traceback"), LONGEST_STACK),
        "consequence": raw.get("consequence") is True,
        "tracers": [
            {
                **{name: _name(tracer.get(name)) for name in ("worker", "thread", "region")},
                "stack": _text(tracer.get("stack"), LONGEST_STACK),
            }
            for tracer in tracers[:MOST_TRACERS]
        ],
        "tracers_dropped": max(0, len(tracers) - MOST_TRACERS),
    }


def _step(raw: Mapping[str, Any]) -> int | None:
    """None outside of the workers, whatever the thread there has counted."""
    step = raw.get("step")
    return count_of(step) if isinstance(step, int) and step >= 0 and not raw.get("stage") else None


def _text(value: object, longest: int) -> str:
    return clip(value, longest, tail=0.75) if isinstance(value, str) else ""


def _name(value: object) -> str:
    return clip(value, LONGEST_NAME) if isinstance(value, str) else ""


def _texts(value: object) -> dict[str, str]:
    return {_name(name): _text(text, LONGEST_MESSAGE) for name, text in dict_of(value).items() if isinstance(text, str)}


def _sums(value: object) -> dict[str, dict[str, float]]:
    """Name → its measures: locks, devices."""
    return {
        _name(name): {_name(key): float(number) for key, number in entry.items() if seconds_of(number) is not None}
        for name, entry in list(dict_of(value).items())[:MOST_WORKERS]
        if isinstance(entry, dict)
    }


def count_of(value: object) -> int:
    """The value where it is a count, else 0."""
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0


def seconds_of(value: object) -> float | None:
    """The value where it is a number that a time can be, else None."""
    return float(value) if isinstance(value, int | float) and abs(value) < _MOST_SECONDS else None


def list_of(value: object) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def dict_of(value: object) -> dict[str, Any]:
    """The value where it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}


def _short(value: object) -> str:
    return clip(repr(value), 60)
