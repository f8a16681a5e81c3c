"""`harness.analysis.row_signs`: what the row of a trial tells where nothing was raised."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.explain import Match
from harness.analysis.row_signs import joined, signs
from harness.hazards import HAZARDS, find

LIMIT = "W0 torch/_dynamo/convert_frame.py:1] [0/8] torch._dynamo hit config.recompile_limit (8)\n"
DENSE: dict[str, Any] = {"outcomes": ["dense"], "dense_calls": 70, "torch": "2.14.1+cpu"}


def found(row: dict[str, Any], log: str = "") -> list[tuple[str, bool]]:
    return [(sign.hazard, sign.certain) for sign in signs(row, log)]


def dense(dynamo: str, log: str = "", **rest: Any) -> list[tuple[str, bool]]:
    return found({**DENSE, "scenario": {"dynamo": dynamo}, **rest}, log)


def test_dense_calls_by_the_setting_that_the_row_names() -> None:
    assert dense("limit_in_main") == [("dense-by-thread-config", True)]
    assert dense("nested_trace_allowed", torch="2.13.0") == [("dense-by-config", True)]
    assert dense("default", LIMIT) == [("dense-by-recompile-limit", True)]
    assert dense("limit_in_main", LIMIT, torch="2.11.0") == [("dense-by-recompile-limit", True)], "there it is global"
    assert dense("nested_trace_allowed", LIMIT, torch="2.14.1") == [("dense-by-recompile-limit", True)]


def test_dense_calls_without_a_reason_name_all_that_may_be() -> None:
    every = ["dense-by-recompile-limit", "dense-by-thread-config", "dense-by-config"]
    assert dense("default") == [(name, False) for name in every]
    assert found(DENSE, LIMIT) == [(name, False) for name in every[:2]], "whose limit it was is not told"
    assert dense("default", LIMIT, scenario={"workload": "watch:a.py", "dynamo": "default"}) == [
        (name, False) for name in every[:2]
    ]
    assert "hit config.recompile_limit" in signs(DENSE)[0].missing
    assert found({**DENSE, "outcomes": ["ok"]}) == [], "where nothing is compiled, dense is what was asked for"
    assert found({**DENSE, "dense_calls": 0}) == []


def test_what_went_wrong_first_is_the_cause() -> None:
    row = {**DENSE, "scenario": {"dynamo": "limit_in_main"}}
    (first,) = signs({**row, "outcomes": ["dense", "graph_corrupt"]})
    (later,) = signs({**row, "outcomes": ["graph_corrupt", "dense"]})
    assert (first.first, later.first) == (True, False)
    raised = Match(find("eager-flex-unsafe"), (), "raised")
    assert [match.hazard.id for match in joined([raised], [first])] == ["dense-by-thread-config", "eager-flex-unsafe"]
    assert [match.hazard.id for match in joined([raised], [later])] == ["eager-flex-unsafe", "dense-by-thread-config"]


@pytest.mark.parametrize(
    ("label", "text", "hazard"),
    [
        ("state_leak", "the state of torch's random generator changed while a compiled; the compile put …", "rng-rewind"),
        ("state_leak", "the state of cuda:1's random generator changed while a compiled; …", "rng-rewind"),
        ("state_leak", "drafter-0: item 4 draws anchors from the generator state of item 2: it was put back", "rng-rewind"),
        ("state_leak", "the default dtype changed while a compiled (float32 before, float64 after)", "globals-reverted"),
        ("state_leak", "deterministic algorithms changed while a compiled (True before, False after)", "globals-reverted"),
        ("state_leak", "deterministic warn-only: False before, True after", "globals-reverted"),
        ("state_leak", "default dtype: torch.float32 before, torch.float64 after", "globals-reverted"),
        ("state_leak", "FX-tracing flag: False before, True after", "fx-flag-stuck"),
        ("state_leak", "Dynamo's settings: a before, b after", "limits-stuck"),
        ("dense", "a: a compiled function ran uncompiled, since b was tracing at that moment", "dense-by-config"),
        ("hazard", "this is user-lock-inversion: a lock; remedy: none", "user-lock-inversion"),
    ],
)
def test_a_problem_by_its_label_and_text(label: str, text: str, hazard: str) -> None:
    row = {"outcomes": [label], "problems": [{"label": label, "text": text}]}
    assert found(row) == [(hazard, True)]
    assert hazard in {one.id for one in HAZARDS}
    assert found({**row, "problems": [{"label": "numerics", "text": text}]}) == []


def test_is_compiling_in_a_thread_that_compiles_nothing() -> None:
    workers = {"draw": {"counts": {"is_compiling_leaks": 2}}, "other": {"counts": {}}, "odd": None}
    (sign,) = signs({"outcomes": ["ok"], "workers": workers})
    assert (sign.hazard, sign.why[-6:]) == ("compiling-leak", "draw 2")


def test_other_settings_than_the_main_thread_s() -> None:
    facts = {"settings": {"worker": {"recompile_limit": {"here": 64, "there": 8}}}}
    assert found({**DENSE, "facts": facts}) == [("dense-by-thread-config", True)]
    assert found({"outcomes": ["ok"], "facts": facts}) == [("dense-by-thread-config", False)]
    elsewhere = {"worker": {"dense_calls": 0}, "other": {"dense_calls": 3}}
    assert ("dense-by-thread-config", True) not in found({**DENSE, "facts": facts, "workers": elsewhere})
    assert found({"outcomes": ["ok"], "facts": {"settings": {"worker": {"suppress_errors": {"here": 1, "there": 0}}}}}) == []


def test_of_several_possible_ones_none_is_named_beside_one_that_is_certain() -> None:
    row = {"outcomes": ["state_leak"], "problems": [{"label": "state_leak", "text": "nn.Module.__call__: another function"}]}
    told = signs(row)
    assert [sign.hazard for sign in told if not sign.certain] == ["fx-flag-stuck", "eager-flex-unsafe", "patches-reapplied"]
    assert len(joined([], told)) == 3
    raised = Match(find("eager-flex-unsafe"), (), "raised")
    assert joined([raised], told) == [raised]


def test_what_this_torch_cannot_have_is_left_out() -> None:
    told = signs({"outcomes": ["state_leak"], "problems": [{"label": "state_leak", "text": "Dynamo's settings: a, b"}]})
    assert [match.hazard.id for match in joined([], told, "2.11.0")] == ["limits-stuck"]
    assert joined([], told, "2.13.0") == []


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"outcomes": "dense", "dense_calls": "7", "problems": {}, "workers": [], "facts": 3, "scenario": []},
        {"outcomes": [3, None], "dense_calls": None, "problems": [None, {"label": 3}], "workers": {"a": {"counts": 3}}},
        {"outcomes": ["ok"], "facts": {"settings": {"a": 3}}, "torch": 3},
        {"problems": [{"label": "hazard", "text": "this is no hazard"}]},
    ],
)
def test_a_damaged_row_tells_nothing(row: dict[str, Any]) -> None:
    assert signs(row) == []
