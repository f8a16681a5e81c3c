"""The page of a bisection's folder: its answer is the headline, and what plans have settled is not called "not run"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_folder import write_folder
from fake_runs import row

from harness.core.scenario import Scenario
from harness.report.badge import summary_line
from harness.report.html import render
from harness.report.page import build_page
from harness.report.rundata import read_run

MATRIX = 'schema = 1\n[axes]\nlock = ["none", "per_call", "first_step", "compile_gate"]\n'
NONE = Scenario()
HAZARD = "fx-flag-collision"


def entry(lock: str, verdict: Any, **rest: Any) -> dict[str, Any]:
    return {"lock": lock, "verdict": verdict, "trials": 0, "failures": 0, "plans": {}, "witness": None, **rest}


def witness(scenario: Scenario) -> dict[str, Any]:
    return {"hazard": HAZARD, "trial": f"plans/{HAZARD}--{scenario.id}--0/trials/001-plan", "label": "fx_error"}


LADDER = [
    entry("none", "unsafe", plans={HAZARD: "reproduced"}, witness=witness(NONE)),
    entry("per_call", "unsafe", implied_by="first_step"),
    entry(
        "first_step", "unsafe", trials=4, failures=1, witness={"label": "dense", "worker": "d-0", "trial": "trials/x"}
    ),
    entry("compile_gate", "safe", trials=59, certified=59, plans={HAZARD: "excluded", "other": "unreachable"}),
]
ANSWER = {
    "answer": "compile_gate",
    "verdict": "safe",
    "conclusion": "compile_gate is safe",
    "cheapest": True,
    "ladder": LADDER,
    "trials_total": 70,
    "p_min": 0.05,
    "confidence": 0.95,
    "open": [],
    "stopped": "",
}


def bisected(folder: Path, answer: Any = ANSWER, **question: Any) -> Path:
    rows = [row(NONE.replace(lock="first_step"), n, "fx_error" if n else "ok") for n in range(2)]
    write_folder(folder, [*rows, row(NONE.replace(lock="compile_gate"))], matrix=MATRIX)
    (folder / "bisect.json").write_text(json.dumps({"schema": 1, "what": "locks", "answer": answer, **question}))
    return folder


def test_the_answer_is_the_headline(tmp_path: Path) -> None:
    page = build_page(read_run(bisected(tmp_path)))
    assert page.answer.tone == "safe"
    assert page.answer.sentence == (
        "compile_gate is safe: 0 of 59 fresh trials failed (so fewer than 5.0 % fail, at 95 % confidence)."
    )
    assert page.answer.rest == (
        "Of 4 strategies 3 are unsafe (1 by trials, 1 by plan, 1 holding less than one that failed), 1 is safe. "
        "70 trials in all, those of plans included."
    )
    assert page.judgement == "", "a bisection is after failures: no one is unexpected"


def test_what_a_plan_has_settled_is_unsafe_and_what_was_not_run_stays_so(tmp_path: Path) -> None:
    page = build_page(read_run(bisected(tmp_path)))
    states = {view.name.removeprefix("lock="): (view.state, view.word, view.labels) for view in page.scenarios}
    assert states["none"] == ("unsafe", "unsafe by plan", ((HAZARD, 1),))
    assert states["per_call"][0] == "notrun"
    assert states["first_step"][1] == "unsafe", "its own trials say so"


def test_a_plan_of_another_scenario_says_nothing_of_this_one(tmp_path: Path) -> None:
    other = entry("none", "unsafe", plans={HAZARD: "reproduced"}, witness=witness(NONE.replace(checkpoint="reentrant")))
    page = build_page(read_run(bisected(tmp_path, {**ANSWER, "ladder": [other]})))
    assert next(view for view in page.scenarios if view.name == "lock=none").state == "notrun"


def cells(page: Any) -> dict[str, tuple[str, str]]:
    return {view.name.removeprefix("lock="): (view.state, view.count.partition(" ")[0]) for view in page.scenarios}


def test_the_grid_has_the_verdicts_of_a_bisection_by_a_rate_of_its_own(tmp_path: Path) -> None:
    gate, first = NONE.replace(lock="compile_gate"), NONE.replace(lock="first_step")
    rows = [*(row(gate, n) for n in range(7)), *(row(first, n) for n in range(3)), row(NONE, 0, "fx_error")]
    ladder = [
        entry("none", "unsafe", trials=1, failures=1),
        entry("first_step", "undecided", trials=3),
        entry("compile_gate", "safe", trials=7, certified=7),
    ]
    answer = {**ANSWER, "ladder": ladder, "p_min": 0.35}
    write_folder(tmp_path, rows, matrix=MATRIX)
    (tmp_path / "bisect.json").write_text(json.dumps({"schema": 1, "what": "locks", "answer": answer}))
    page = build_page(read_run(tmp_path))
    assert cells(page) == {
        "none": ("unsafe", "1/1"),
        "per_call": ("notrun", ""),
        "first_step": ("undecided", "0/3"),
        "compile_gate": ("safe", "0/7"),
    }
    meanings = {name: meaning for name, _, _, meaning in page.legend}
    assert meanings["safe"].endswith("7 fresh trials or more, none failed")
    html = render(page)
    assert "nothing permits" not in html
    assert 'id="expectations"' not in html
    assert 'href="#expectations"' not in html
    assert "--repeats 59" not in html


def test_fewer_trials_than_a_rarer_failure_takes_are_not_called_safe(tmp_path: Path) -> None:
    gate = NONE.replace(lock="compile_gate")
    answer = {**ANSWER, "ladder": [entry("compile_gate", "undecided", trials=60)], "p_min": 0.01, "verdict": "undecided"}
    write_folder(tmp_path, [row(gate, n) for n in range(60)], matrix=MATRIX)
    (tmp_path / "bisect.json").write_text(json.dumps({"schema": 1, "what": "locks", "answer": answer}))
    assert cells(build_page(read_run(tmp_path)))["compile_gate"] == ("undecided", "0/60")


@pytest.mark.parametrize(
    ("schedule", "state"), [("delays:7:rare", "safe"), ("delays:7:dense", "undecided"), ("none", "undecided")]
)
def test_safe_is_under_the_schedule_that_it_was_certified_under(tmp_path: Path, schedule: str, state: str) -> None:
    gate = NONE.replace(lock="compile_gate", schedule=schedule)
    schedules = {name: {"trials": 7, "failures": 0} for name in ("", "delays:*:rare", "delays:*:dense")}
    one = entry("compile_gate", "safe", trials=7, schedule="delays:*:rare", schedules=schedules)
    write_folder(tmp_path, [row(gate, n) for n in range(3)], matrix='schema = 1\n[axes]\nlock = "compile_gate"\n')
    document = {"schema": 1, "what": "locks", "answer": {**ANSWER, "ladder": [one], "p_min": 0.35}}
    (tmp_path / "bisect.json").write_text(json.dumps(document))
    view = next(view for view in build_page(read_run(tmp_path)).scenarios if view.id == gate.id)
    assert view.state == state


def test_ladder_and_plans_are_on_the_page(tmp_path: Path) -> None:
    page = build_page(read_run(bisected(tmp_path)))
    assert page.bisected is not None
    shown = {one.lock: (one.failed, one.by_plan, one.why) for one in page.bisected.rows}
    assert shown["none"] == ("not run", "1 of 1 plan reproduced", f"{HAZARD}, by plan")
    assert shown["per_call"] == ("not run", "", "holds less than first_step")
    assert shown["first_step"] == ("1/4", "", "dense: d-0")
    assert shown["compile_gate"] == ("0/59", "0 of 2 plans reproduced", "59 fresh trials, none failed")
    html = render(page)
    section = html[html.index('<section id="bisect">') : html.index('<section id="grid">')]
    for words in ("compile_gate", "1 of 1 plan reproduced", "unreachable", "a role waits on a lock"):
        assert words in section


@pytest.mark.parametrize(
    ("change", "tone", "sentence"),
    [
        (
            {"verdict": "unsafe", "conclusion": "no strategy here is safe"},
            "unsafe",
            "No strategy here is safe: of 4 strategies 3 are unsafe (1 by trials,",
        ),
        (
            {"verdict": "undecided", "conclusion": "undecided", "stopped": "--max-trials 3 reached"},
            "undecided",
            "Undecided: of 4 strategies 3 are unsafe (1 by trials, 1 by plan,",
        ),
        (
            {"conclusion": "nothing to fix", "answer": "none"},
            "safe",
            "Nothing to fix: none is safe: 0 of 59 fresh trials",
        ),
    ],
)
def test_the_other_answers(tmp_path: Path, change: dict[str, Any], tone: str, sentence: str) -> None:
    found = build_page(read_run(bisected(tmp_path, {**ANSWER, **change}))).answer
    assert found.tone == tone
    assert found.sentence.startswith(sentence)
    assert ("Stopped: --max-trials 3 reached." in found.rest) == ("stopped" in change)


def test_safe_in_each_scenario_is_said(tmp_path: Path) -> None:
    page = build_page(read_run(bisected(tmp_path, contexts=[{}, {}])))
    assert "failed in each scenario (so" in page.answer.sentence


def test_regions_have_a_table_too(tmp_path: Path) -> None:
    tested = [{"lock": "each:loss", "verdict": "unsafe", "trials": 3, "failures": 1, "witness": None}]
    answer = {**{key: value for key, value in ANSWER.items() if key != "ladder"}, "tested": tested}
    page = build_page(read_run(bisected(tmp_path, answer, what="regions")))
    assert page.bisected is not None
    assert [(one.lock, one.failed) for one in page.bisected.rows] == [("each:loss", "1/3")]


@pytest.mark.parametrize(
    "answer",
    [None, 5, [], {}, {"ladder": 3}, {"ladder": [1], "verdict": "fine"}, {"ladder": "x", "verdict": ["safe"]}],
)
def test_without_an_answer_it_is_the_page_of_a_run(tmp_path: Path, answer: Any) -> None:
    page = build_page(read_run(bisected(tmp_path, answer)))
    assert page.bisected is None
    assert page.answer.sentence.startswith("1 of 4 scenarios is unsafe")
    assert 'id="bisect"' not in render(page)


def test_hostile_fields_are_shown_as_text_or_left_out(tmp_path: Path) -> None:
    odd = [
        entry("<script>", "safe", certified="x", plans=[1], witness=[2]),
        entry("none", ["unsafe"]),
        entry("none", "unsafe", trials=-1, failures=1e400, plans={"<b>": 7}, witness={"hazard": ["<i>"], "trial": {}}),
    ]
    broken = {**ANSWER, "ladder": odd, "p_min": "<u>", "trials_total": None, "open": [{}], "conclusion": None}
    html = render(build_page(read_run(bisected(tmp_path, broken))))
    for tag in ("<b>&", "<i>", "<u>", "<script>,"):
        assert tag not in html
    assert "&lt;script&gt;" in html


def test_a_failure_beside_a_plan_s_order_is_said_to_be_one(tmp_path: Path) -> None:
    """It proves the strategy unsafe, and says nothing of the plan's own hazard."""
    beside = {
        "plan": HAZARD, "trial": f"plans/{HAZARD}--{NONE.id}--0/trials/001-plan", "label": "deadlock", "worker": "drafter-1",
        "known_as": "compile-lock-engine-deadlock",
    }  # fmt: skip
    ladder = [entry("none", "unsafe", plans={HAZARD: "undecided"}, plan_failures=1, witness=beside), *LADDER[1:]]
    text = render(build_page(read_run(bisected(tmp_path, {**ANSWER, "ladder": ladder}))))
    assert f"deadlock (compile-lock-engine-deadlock): drafter-1, while the plan of {HAZARD} was tried" in text
    assert "1 in a plan&#39;s trial" in text
    assert f"{HAZARD}, by plan" not in text
    assert "0 of 1 plan reproduced" in text
    assert "In a plan: the strategy failed in a trial of one" in text
    assert "No trial outside of plans (for those see above) hung or died." in text


def step(seat: str, point: str, role: str, **rest: Any) -> dict[str, Any]:
    return {"event": "step", "attempt": 1, "seat": seat, "point": point, "role": role, "source": "m.py:7 call", **rest}


STEPS = [
    step("drafter-0", "fx.window.open", "A", attempt=0, source="m.py:1 earlier"),
    step("drafter-0", "fx.window.open", "A"),
    step("drafter-1", "compiled_call.checked", "B", info="true"),
]


def seen(folder: Path, found: dict[str, Any], lock: str = "none") -> str:
    """What the page shows of a strategy's failure."""
    html = render(build_page(read_run(bisected(folder, {**ANSWER, "ladder": [entry(lock, "unsafe", witness=found)]}))))
    section = html[html.index('<section id="bisect">') : html.index('<section id="grid">')]
    return section.partition("What was seen of those that failed")[2].replace("<span>", "").replace("</span>", "")


def test_what_a_plan_brought_about_is_shown_in_its_order_and_where_to_read_on(tmp_path: Path) -> None:
    shown = seen(tmp_path, {**witness(NONE), "steps": STEPS})
    pre = shown[shown.index("<pre") : shown.index("</pre>")]
    head, first, second = pre.index("A = drafter-0"), pre.index("fx.window.open"), pre.index("compiled_call.checked true")
    assert head < first < second
    assert pre.count("fx.window.open") == 1, "of the last attempt alone"
    assert "m.py:7 call" in pre
    assert f"harness explain {tmp_path}/plans/{HAZARD}--{NONE.id}--0/trials/001-plan/" in shown


def test_an_error_is_shown_with_what_the_others_were_in(tmp_path: Path) -> None:
    others = [{"worker": "d-1", "region": "mask"}, {"worker": "", "region": ""}, 7]
    shown = seen(tmp_path, {"label": "dense", "trial": "trials/x y", "message": "fell to <dense>", "against": others})
    assert "fell to &lt;dense&gt;" in shown
    assert "At that moment: d-1 in mask, ? in ?." in shown
    assert f"&#39;{tmp_path}/trials/x y/&#39;" in shown, "as a shell takes it"
    assert "<pre" not in shown


@pytest.mark.parametrize(
    "steps",
    [7, [7], [{**STEPS[1], "seat": 3}], [{**STEPS[1], "point": ""}], [{**STEPS[1], "attempt": "x"}], [*STEPS, {}]],
)
def test_an_order_that_is_not_whole_is_not_shown(tmp_path: Path, steps: Any) -> None:
    shown = seen(tmp_path, {**witness(NONE), "steps": steps})
    assert "<pre" not in shown
    assert "harness explain" in shown


def test_without_a_witness_nothing_is_said_to_have_been_seen(tmp_path: Path) -> None:
    text = render(build_page(read_run(bisected(tmp_path, {**ANSWER, "ladder": [entry("none", "unsafe", implied_by="x")]}))))
    assert "What was seen of those that failed" not in text


def test_scenarios_that_differ_in_their_schedule_alone_are_told_apart(tmp_path: Path) -> None:
    """The matrix of a bisection has the scenarios' own schedule; the portfolio's have a seed each."""
    gate = NONE.replace(lock="compile_gate")
    seeds = [gate.replace(schedule=f"delays:{seed}:dense") for seed in range(2)]
    rows = [row(one, 0, reason="cut off", outcomes=["interrupted"], outcome="interrupted") for one in (gate, *seeds)]
    write_folder(tmp_path, rows, matrix=MATRIX)
    (tmp_path / "bisect.json").write_text(json.dumps({"schema": 1, "what": "locks", "answer": ANSWER}))
    page = build_page(read_run(tmp_path))
    names = [view.name for view in page.scenarios]
    assert len(names) == len(set(names))
    told = ("lock=compile_gate", *(f"lock=compile_gate schedule=delays:{seed}:dense" for seed in range(2)))
    assert set(told) < set(names)
    assert "schedule=none" in page.unsaid
    assert page.incomplete[0].names == told


def test_the_summary_is_the_bisection_s_answer(tmp_path: Path) -> None:
    """Not the scenarios' verdicts by another rate."""
    data = read_run(bisected(tmp_path))
    line = summary_line(data, build_page(data))
    assert line == (
        f"wide on torch {data.torch}: compile_gate is safe: 0 of 59 fresh trials failed (so fewer than 5.0 % fail, at 95 % "
        "confidence). Of 4 strategies 3 are unsafe (1 by trials, 1 by plan, 1 holding less than one that failed), 1 is safe. "
        "70 trials in all, those of plans included"
    )
    stopped = read_run(bisected(tmp_path / "other", {**ANSWER, "verdict": "undecided", "conclusion": "undecided"}))
    assert ": Undecided: of 4 strategies" in summary_line(stopped, build_page(stopped))


def with_seeds(folder: Path) -> Path:
    """compile_gate certified under a family of schedules, with another seed in each trial; one trial under another family."""
    gate = NONE.replace(lock="compile_gate")
    seeds = [gate.replace(schedule=f"delays:{seed}:rare") for seed in range(7)]
    other = gate.replace(schedule="delays:0:dense")
    schedules = {name: {"trials": 7, "failures": 0} for name in ("", "delays:*:rare", "delays:*:dense")}
    one = entry("compile_gate", "safe", trials=7, schedule="delays:*:rare", schedules=schedules)
    write_folder(folder, [row(gate, 0), row(NONE, 0, "fx_error"), *(row(seed) for seed in seeds), row(other)], matrix=MATRIX)
    document = {"schema": 1, "what": "locks", "answer": {**ANSWER, "ladder": [one], "p_min": 0.35}}
    (folder / "bisect.json").write_text(json.dumps(document))
    return folder


def test_the_grid_has_a_row_for_a_family_of_schedules_and_a_tile_for_each_seed(tmp_path: Path) -> None:
    page = build_page(read_run(with_seeds(tmp_path)))
    assert (page.grid.row_axis, page.grid.column_axis) == ("lock", "schedule")
    [group] = page.grid.groups
    assert group.columns == ("none", "delays:*:rare", "delays:*:dense")
    cells = dict(zip(group.columns, group.cells[group.rows.index("compile_gate")], strict=True))
    shown = {column: [(one.word, one.count.partition(" ")[0]) for one in cell or ()] for column, cell in cells.items()}
    assert shown == {
        "none": [("undecided", "0/1")],
        "delays:*:rare": [("safe", "0/1")] * 7,
        "delays:*:dense": [("undecided", "0/1")],
    }, "counts of different seeds are not added up"
    html = render(page)
    table = html[html.index('<table class="grid">') :].partition("</table>")[0]
    assert table.count('class="tile safe"') == 7
    assert 'title="lock=compile_gate schedule=delays:6:rare"' in table
