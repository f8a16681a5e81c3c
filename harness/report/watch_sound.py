"""A watched process's line of results.jsonl, as it may be after years and accidents → a row that `watched.told` can rely on.

As `sound` does for every row, and with what only a watch writes: the facts, and how each error was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.control.request import Row
from harness.report.sound import MOST_ERRORS, MOST_WORKERS, Sounder, count_of, dict_of, list_of, seconds_of
from harness.report.text import clip

LONGEST = 4_000
MOST = 10_000
_SUMS_COUNTS = ("lock_waits", "engine_runs", "steps")
_SUMS_SECONDS = ("lock_wait_s", "lock_longest_s", "engine_s", "engine_longest_s")


class WatchSounder(Sounder):
    """Makes a watch's rows sound."""

    def sound(self, raw: Mapping[str, Any]) -> Row:
        """The row with every field of its type. Raises UnsoundError, as `Sounder.sound` does."""
        row = super().sound(raw)
        errors = [error for error in list_of(raw.get("errors"))[:MOST_ERRORS] if isinstance(error, dict)]
        for error, given in zip(row["errors"], errors, strict=True):
            error["seen"] = _text(given.get("seen"))
        exit_ = dict_of(raw.get("exit"))
        return {
            **row,
            "exit": {**_texts(exit_, ("how", "signal")), "status": count_of(exit_.get("status"))},
            "problems": [
                _texts(one, ("label", "text", "of"))
                for one in _dicts(raw.get("problems"))
                if isinstance(one.get("label"), str) and isinstance(one.get("text"), str)
            ],
            "workers": {_text(name): _worker(dict_of(one)) for name, one in list(row["workers"].items())[:MOST_WORKERS]},
            "facts": _facts(dict_of(raw.get("facts"))),
        }


def _worker(raw: Mapping[str, Any]) -> dict[str, Any]:
    given = dict_of(dict_of(raw.get("facts")).get("sums"))
    sums: dict[str, Any] = {name: count_of(given.get(name)) for name in _SUMS_COUNTS}
    sums |= {name: _number(given.get(name)) for name in _SUMS_SECONDS}
    sums["regions"] = {
        _text(name): (count_of(one[0]), _number(one[1]), _number(one[2]))
        for name, one in dict_of(given.get("regions")).items()
        if isinstance(one, list) and len(one) == 3
    }
    leaks = count_of(dict_of(raw.get("counts")).get("is_compiling_leaks"))
    return {
        **{name: count_of(raw.get(name)) for name in ("compiles", "dense_calls")},
        "counts": {"is_compiling_leaks": leaks},
        "facts": {"sums": sums},
    }


def _facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """{} where there are none, which says that the process told nothing of itself."""
    if not raw:
        return {}
    events = dict_of(raw.get("events"))
    return {
        "torch_imported": raw.get("torch_imported") is True,
        **{name: count_of(raw.get(name)) for name in ("children_unseen", "other_dense_calls", "recompiles_more")},
        "events": {
            **{name: count_of(events.get(name)) for name in ("limit_bytes", "written_over", "windows_lost", "one_in")},
            "dropped": {_text(name): count_of(one) for name, one in dict_of(events.get("dropped")).items()},
        },
        "stuck": [
            {
                **{name: _text(one.get(name)) for name in ("label", "reason")},
                "at_s": _number(one.get("at_s")),
                "ended_s": seconds_of(one.get("ended_s")),
            }
            for one in _dicts(raw.get("stuck"))
        ],
        "settings": {
            _text(worker): {_text(name): {side: one.get(side) for side in ("here", "there")} for name, one in told.items()}
            for worker, told in dict_of(raw.get("settings")).items()
            if isinstance(told, dict) and all(isinstance(one, dict) for one in told.values())
        },
        "recompiles": [
            {**{name: _text(one.get(name)) for name in ("worker", "function", "reason")}, "count": count_of(one.get("count"))}
            for one in _dicts(raw.get("recompiles"))
        ],
    }


def _texts(raw: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    """Those that are texts; of another type, or missing, they are not there."""
    return {name: _text(raw[name]) for name in names if isinstance(raw.get(name), str)}


def _text(value: object) -> str:
    return clip(value, LONGEST) if isinstance(value, str) else ""


def _number(value: object) -> float:
    return seconds_of(value) or 0.0


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in list_of(value)[:MOST] if isinstance(one, dict)]
