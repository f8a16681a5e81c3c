"""What stands under each key of a row of `results.jsonl` and of a trial's `result.json`: the shape, not the sense."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.core.axes import AXES
from harness.core.outcome import LABELS

Is = Callable[[object], bool]

ROW_SCHEMA = 1
"""Of a row and of a result: what this version writes, and reads."""


def is_text(value: object) -> bool:
    """A string."""
    return isinstance(value, str)


def is_whole(value: object) -> bool:
    """An integer of 64 bits."""
    return isinstance(value, int) and -(1 << 63) <= value < 1 << 63


def is_number(value: object) -> bool:
    """An integer of 64 bits or a float, NaN and the infinite ones too."""
    return isinstance(value, float) or is_whole(value)


def _are_outcomes(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(label in LABELS for label in value)


def _is_any(value: object) -> bool:
    return True


def _or_null(shape: Is) -> Is:
    return lambda value: value is None or shape(value)


def _list_of(shape: Is) -> Is:
    return lambda value: isinstance(value, list) and all(map(shape, value))


def _object_of(shape: Is) -> Is:
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


def _object(keys: Mapping[str, Is]) -> Is:
    """Each of these keys may be missing or null; what others hold is free."""

    def holds(value: object) -> bool:
        return isinstance(value, dict) and all(value.get(key) is None or shape(value[key]) for key, shape in keys.items())

    return holds


_TRACER = _object({"worker": is_text, "thread": is_text, "stack": is_text})
_ERROR = _object(
    {
        **dict.fromkeys(("label", "type", "message", "fingerprint", "traceback"), is_text),
        **dict.fromkeys(("worker", "thread", "region", "stage"), is_text),
        "step": is_whole,
        "at_s": is_number,
        "tracers": _list_of(_TRACER),
    }
)
_SHAPES: dict[str, tuple[Is, str]] = {
    **dict.fromkeys(("trial", "scenario_id", "outcome", "reason", "torch", "python"), (is_text, "a string")),
    **dict.fromkeys(
        ("repeat", "fx_errors", "dense_calls", "compiles", "steps_ok", "steps_failed", "steps_expected"),
        (is_whole, "a whole number"),
    ),
    **dict.fromkeys(("startup_s", "tokens_per_s", "start_s"), (_or_null(is_number), "a number")),
    "wall_s": (is_number, "a number"),
    "scenario": (
        _object({axis.name: is_whole if axis.kind == "int" else is_text for axis in AXES}),
        "an object with a value an axis",
    ),
    "outcomes": (_are_outcomes, "a list of outcomes that this version knows"),
    "errors": (_list_of(_ERROR), "a list of errors"),
    "exit": (_object({"how": is_text, "status": is_whole, "signal": is_text}), "an object with how, status and signal"),
    "workers": (_object_of(lambda value: isinstance(value, dict)), "an object with an object a worker"),
    "probes": (_object_of(_is_any), "an object"),
    "oracles": (_object_of(_is_any), "an object"),
    "evidence": (_list_of(is_text), "a list of strings"),
    "last_events": (_list_of(_object({})), "a list of events"),
    "problems": (_list_of(_object({"label": is_text, "text": is_text})), "a list of objects"),
    "locks": (_object_of(_object({"taken": is_whole})), "an object with an object a lock"),
    "facts": (_object({"regions": _list_of(is_text)}), "an object"),
}
ALWAYS = (
    *("trial", "scenario_id", "scenario", "repeat", "outcome", "outcomes", "reason", "fx_errors", "dense_calls", "compiles"),
    *("wall_s", "steps_ok", "steps_failed", "steps_expected", "errors", "workers", "probes", "exit", "oracles", "evidence"),
    *("last_events", "torch", "python"),
)
"""What every row has that this version writes, and never as null."""


def fault(document: Mapping[str, Any], required: Iterable[str] = (), *, nulls: bool = False) -> str:
    """The first thing that is wrong with a row or a result, in words such as `"errors" is not a list of errors`; or "".

    `nulls`: one may stand for whatever is not required, as if the key were missing.
    """
    if document.get("schema", ROW_SCHEMA) != ROW_SCHEMA:
        return f'"schema" is {document["schema"]!r}, and this version reads {ROW_SCHEMA}'
    for key in required:
        if document.get(key) is None:
            return f'it has no "{key}"'
    for key, (holds, words) in _SHAPES.items():
        if key in document and not (nulls and document[key] is None) and not holds(document[key]):
            return f'"{key}" is not {words}'
    return ""
