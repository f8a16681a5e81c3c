"""A watch's row as it may be after an accident: what is whole is told as it was, what is not is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.core.scenario import Scenario
from harness.report.html import render
from harness.report.rundata import read_run
from harness.report.watch_page import build_watch_page
from harness.report.watch_sound import WatchSounder
from harness.report.watched import told

SUMS = {
    "lock_waits": 3, "lock_wait_s": 1.25, "lock_longest_s": 0.5, "engine_runs": 4, "engine_s": 2.5, "engine_longest_s": 1.5,
    "steps": 9, "regions": {"forward": [7, 3_000_000_000, 1_000_000_000]},
}  # fmt: skip
WORKER = {
    "role": "thread", "compiles": 2, "dense_calls": 1, "counts": {"is_compiling_leaks": 2}, "facts": {"sums": SUMS},
}  # fmt: skip
ERROR = {
    "label": "error", "type": "ValueError", "message": "no shard 3", "fingerprint": "f", "worker": "t-1", "thread": "t-1",
    "region": "", "step": None, "consequence": False, "seen": "thread", "tracers": [],
    "traceback": 'Traceback (most recent call last):\n  File "/home/me/train.py", line 15, in work\n',
}  # fmt: skip
TRACED = {
    **ERROR, "label": "fx_error", "type": "RuntimeError", "fingerprint": "g", "step": 4, "region": "forward",
    "tracers": [{"worker": "t-0", "thread": "t-0", "region": "", "stack": ""}],
}  # fmt: skip
FACTS = {
    "torch_imported": True, "children_unseen": 2, "other_dense_calls": 1, "recompiles_more": 5,
    "events": {"limit_bytes": 1 << 24, "written_over": 7, "windows_lost": 1, "one_in": 4, "dropped": {"x": 2}},
    "stuck": [{"label": "hang", "reason": "t-0 waits", "at_s": 2.0, "ended_s": 3.5}],
    "settings": {"t-1": {"recompile_limit": {"here": 8, "there": 64}}},
    "recompiles": [{"worker": "t-0", "function": "f (m.py:2)", "reason": "size 2, 3", "count": 3}],
}  # fmt: skip
ROW: dict[str, Any] = {
    "schema": 1, "trial": "process-7", "scenario_id": "w", "scenario": Scenario(workload="watch:train.py").to_dict(),
    "outcome": "fx_error", "outcomes": ["fx_error", "dense", "error", "crash"], "reason": "the process ended by SIGSEGV",
    "exit": {"status": None, "signal": "SIGSEGV", "how": "signal"}, "torch": "2.13.0", "wall_s": 4.0,
    "fx_errors": 1, "dense_calls": 3, "compiles": 5, "errors": [TRACED, ERROR], "workers": {"t-0": WORKER, "t-1": WORKER},
    "probes": {"flag_check": "ok", "engine": "unavailable: no hook"}, "facts": FACTS,
    "problems": [{"label": "rng", "text": "it was rewound"}, {"label": "hazard", "text": "this is x", "of": "fx_error"}],
}  # fmt: skip
OTHER_TYPES: tuple[Any, ...] = (None, 7, -1.5, "x", [], {}, ["x"], [7], {"a": 1}, {"a": {}}, [{}], [["x"]], True)


def changed(value: Any) -> Iterator[Any]:
    """The value with one part, anywhere in it, of another type or missing."""
    yield from OTHER_TYPES
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: kept for name, kept in value.items() if name != key}
            for other in changed(part):
                yield {**value, key: other}
    elif isinstance(value, list):
        for at, part in enumerate(value):
            for other in changed(part):
                yield [*value[:at], other, *value[at + 1 :]]


def folder(path: Path, *lines: str) -> Path:
    (path / "results.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (path / "environment.json").write_text(json.dumps({"schema": 1, "kind": "watch", "torch": "2.13.0"}))
    return path


def test_what_is_whole_is_told_as_it_was() -> None:
    found = told(WatchSounder().sound(ROW))
    assert found == told(ROW)
    assert {one.topic for one in found} >= {
        "fx_error", "error", "dense", "rng", "hazard", "hang", "settings", "state_leak", "compiles", "recompile",
        "compile lock", "engine", "region", "probes", "events", "children",
    }  # fmt: skip


@pytest.mark.parametrize("field", sorted(ROW))
def test_whatever_else_stands_in_a_row_has_a_page(tmp_path: Path, field: str) -> None:
    """The field as a whole of another type as a page; any part of it, some thousands of rows, as what is told."""
    for value in OTHER_TYPES:
        render(build_watch_page(read_run(folder(tmp_path, json.dumps({**ROW, field: value})))))
    if field not in ("scenario", "outcome", "outcomes", "schema"):  # without these it is no row
        for value in changed(ROW[field]):
            told(WatchSounder().sound({**ROW, field: value}))


@pytest.mark.parametrize("field", sorted(ROW))
def test_whatever_a_row_lacks_it_has_a_page(tmp_path: Path, field: str) -> None:
    lacking = {kept: value for kept, value in ROW.items() if kept != field}
    render(build_watch_page(read_run(folder(tmp_path, json.dumps(lacking)))))


def test_one_damaged_line_leaves_the_others(tmp_path: Path) -> None:
    run = folder(tmp_path, json.dumps(ROW), '{"half":', json.dumps({**ROW, "trial": "p-8"}))
    text = render(build_watch_page(read_run(run)))
    assert "process-7" in text
    assert "p-8" in text
    assert text.count("not a row of results") == 1, "said once, though the rows are read twice"
