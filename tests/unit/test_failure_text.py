"""The words of a failed scenario: which stack frames are shown, and what is said where no exception explains it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_runs import FX_ERROR, fx_row, row

from harness.analysis.summary import summarise
from harness.control.request import Row
from harness.core.matrix import Judgement
from harness.core.scenario import Scenario
from harness.report.failure import failure_text, innermost, properties, tally

FRAME = '  File "/somewhere/{name}.py", line 7, in {name}\n    call({name})\n    ^^^^^^^^^\n'
BROKEN = [Judgement("unexpected", "hang in 1 of 1 trial: nothing permits it")]


def stack(*names: str) -> str:
    return "Traceback (most recent call last):\n" + "".join(FRAME.format(name=name) for name in names)


def text_of(*rows: Row, whole: bool = False) -> str:
    found = summarise(rows)
    (summary,) = found.scenarios
    return failure_text(
        summary, found.errors, BROKEN, rows, name="lock=none", run_dir="reports/x", again="pytest x", whole=whole
    )


def test_the_innermost_frames_without_the_message() -> None:
    shown = innermost(stack(*"abcd") + "RuntimeError: first line\n  second line\n", frames=2)
    assert shown[0] == "  (2 outer frames left out; -vv shows all)"
    assert [line.strip() for line in shown if "File" in line] == [
        'File "/somewhere/c.py", line 7, in c',
        'File "/somewhere/d.py", line 7, in d',
    ]
    assert shown[-1].strip() == "^^^^^^^^^"


def test_nothing_is_said_to_be_left_out_where_nothing_is() -> None:
    assert innermost(stack("a"))[0] == '  File "/somewhere/a.py", line 7, in a'
    assert innermost("") == []
    assert innermost("no frames here\n") == ["no frames here"]


def test_the_link_through_which_a_subject_sees_the_harness_is_not_shown() -> None:
    (line,) = innermost('  File "/tmp/harness-a1_b2/harness/pipeline/drafter.py", line 50, in forward\n')
    assert line == '  File "harness/pipeline/drafter.py", line 50, in forward'


MAIN = {"worker": "", "thread": "MainThread", "region": "", "step": 0, "tracers": []}


@pytest.mark.parametrize("label", ["setup_error", "error"])
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({**MAIN, "stage": "set-up"}, "thread MainThread in the set-up\n"),
        (MAIN, "thread MainThread outside of any region, step 0\n"),
        ({"worker": "t-1", "thread": "T", "region": "", "tracers": []}, "t-1 (thread T) outside of any region, step 0\n"),
    ],
)
def test_an_error_outside_of_any_region_says_so(label: str, where: dict[str, Any], said: str) -> None:
    told = text_of(row(Scenario(), 0, label, errors=[{**FX_ERROR, "label": "error", **where}])) + "\n"
    assert f"\n  {said}" in told
    assert "?" not in told
    assert f"innermost stack of {where['worker'] or 'MainThread'}, which failed" in told


def test_whole_stacks_when_asked_for() -> None:
    error = {**FX_ERROR, "traceback": stack(*"abcdefghij") + "RuntimeError: x\n"}
    found = row(Scenario(), 0, "fx_error", errors=[error])
    assert "a.py" not in text_of(found)
    assert "(4 outer frames left out" in text_of(found)
    assert "a.py" in text_of(found, whole=True)
    assert "left out" not in text_of(found, whole=True)


@pytest.mark.parametrize(
    ("label", "fields", "said"),
    [
        (
            "hang",
            {
                "reason": "no event for 30 s",
                "last_events": [
                    {"t": 1_500_000_000, "w": "drafter-0", "th": "drafter-0", "k": "region.enter", "r": "mask"},
                    {"t": 2_500_000_000, "w": "drafter-0", "th": "drafter-0", "k": "compile_lock.wait"},
                    {"t": 2_000_000_000, "w": "", "th": "autograd-7", "k": "strategy_lock.wait", "lock": "first_step"},
                ],
            },
            [
                "hang in 1 trial: no event for 30 s",
                "    drafter-0: compile_lock.wait at 2.500 s",
                "    autograd-7: strategy_lock.wait first_step at 2.000 s",
            ],
        ),
        ("dense", {"dense_calls": 3}, ["dense in 1 trial: 3 attention calls ran dense"]),
        ("numerics", {"reason": "drafter-0, step 2: off"}, ["numerics in 1 trial: drafter-0, step 2: off"]),
        ("crash", {}, ["crash in 1 trial: no reason given"]),
    ],
)
def test_what_is_said_without_an_exception(label: str, fields: dict[str, Any], said: list[str]) -> None:
    lines = text_of(row(Scenario(), 0, label, **fields)).splitlines()
    assert [line for line in said if line not in lines] == []


def test_errors_that_only_follow_from_others_are_left_out() -> None:
    after = {**FX_ERROR, "fingerprint": "later", "message": "aborted", "consequence": True}
    text = text_of(row(Scenario(), 0, "fx_error", errors=[FX_ERROR, after]))
    assert "fingerprint f00dcafe" in text
    assert "later" not in text


def test_many_kinds_of_failure_are_counted() -> None:
    errors = [{**FX_ERROR, "fingerprint": f"number {number}"} for number in range(5)]
    assert "and 2 more kinds of failure" in text_of(row(Scenario(), 0, "fx_error", errors=errors))


def test_properties_and_the_tally_of_a_run() -> None:
    rows = [fx_row(Scenario()), row(Scenario(lock="first_step")), row(Scenario(steps=9), 0, "skipped", reason="no")]
    found = summarise(rows)
    assert tally(found) == "1 unsafe, 1 undecided, 1 skipped"
    assert tally(summarise([])) == "nothing ran"
    named = dict(properties(found.scenarios[0], "there"))
    assert json.loads(str(named["outcomes"])) == {"fx_error": 1}
    assert (named["verdict"], named["trials"], named["failures"], named["run_dir"]) == ("unsafe", 1, 1, "there")
