"""Which trials a page holds, that it stays small, and the page of one trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_events import collision, long_log, write_events
from fake_folder import TRACED, write_folder
from fake_runs import row

from harness.core.errors import UserError
from harness.core.scenario import Scenario
from harness.report import embed as embedding
from harness.report import pack
from harness.report.chosen import MOST_A_SCENARIO
from harness.report.embed import Embedded, embed
from harness.report.html import render
from harness.report.page import build_page
from harness.report.rundata import RunData, read_run
from harness.report.scenarios import scenario_views
from harness.report.trialpage import build_trial_page

ERROR = {**TRACED, "thread": "drafter-1", "at_s": 0.047, "tracers": [{**TRACED["tracers"][0], "thread": "drafter-0"}]}
WORKERS = {name: {"role": name[:-2], "facts": {}} for name in ("target-0", "drafter-0", "drafter-1", "drafter-2")}
NONE, GATE = Scenario(), Scenario(lock="compile_gate")


def failing(repeat: int = 0, **more: Any) -> dict[str, Any]:
    return row(NONE, repeat, "fx_error", errors=[{**ERROR, **more}], workers=WORKERS, startup_s=None)


def run_of(path: Path, rows: list[dict[str, Any]], logs: bool = True) -> RunData:
    run = write_folder(path / "run", rows, matrix='schema = 1\n[axes]\nlock = ["none", "compile_gate"]\n')
    for one in rows if logs else []:
        write_events(run, one["trial"], collision())
    return read_run(run)


def embedded(data: RunData) -> tuple[Embedded, dict[str, Any]]:
    found = embed(data, scenario_views(data))
    return found, json.loads(found.data)


def trial(found: Embedded, document: dict[str, Any], name: str) -> dict[str, Any]:
    block, place = document["places"][name]
    detail: dict[str, Any] = pack.inflated(dict(found.blocks)[f"block-{block}"])[place]
    return detail


def test_the_first_trial_of_each_way_to_fail_and_one_good_one_are_held(tmp_path: Path) -> None:
    rows = [failing(0), failing(1), failing(2, fingerprint="another"), row(NONE, 3), row(NONE, 4), row(GATE, 0)]
    _, document = embedded(run_of(tmp_path, rows))
    assert set(document["places"]) == {"default--r0", "default--r2", "default--r3", "lock=compile_gate--r0"}
    assert set(document["timelines"]) == set(document["places"])
    assert document["trials"][0] == [[0, 0, 0, 1, 1], []], "outcomes of all, ids where they are not the usual"
    assert document["labels"] == [["fx_error"], ["ok"]]


def test_a_scenario_that_fails_in_many_ways_does_not_fill_the_page(tmp_path: Path) -> None:
    rows = [failing(number, fingerprint=str(number)) for number in range(20)] + [row(GATE, 0)]
    _, document = embedded(run_of(tmp_path, rows))
    assert sum(name.startswith("default") for name in document["places"]) == MOST_A_SCENARIO
    assert "lock=compile_gate--r0" in document["places"]


def test_rows_of_any_size_leave_the_page_small(tmp_path: Path) -> None:
    huge = "x" * 1_000_000
    event = {"seat": huge, "point": huge, "event": "step", "attempt": 1}
    open_ended = {"schedule": {"witness": [event]}, "last_events": [{"k": huge}], "workers": {"w": {"role": huge}}}
    rows = [{**failing(0, message=huge, traceback=huge, worker=huge), **open_ended}]
    found, document = embedded(run_of(tmp_path, rows))
    assert sum(len(text) for _, text in found.blocks) < 50_000
    told = trial(found, document, "default--r0")
    assert (told["witness"], told["last"]) == ([], [])
    assert len(json.dumps(told)) < 50_000


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"region": "", "stage": "warm-up", "step": -1}, "thread MainThread failed in the warm-up."),
        ({"region": "", "stage": "", "step": 2}, "thread MainThread failed outside of all regions, step 2."),
        ({"region": "", "step": -1}, "thread MainThread failed outside of all regions."),  # a row of an older release
    ],
)
def test_a_trial_tells_at_which_stage_an_error_came(tmp_path: Path, place: dict[str, Any], said: str) -> None:
    found, document = embedded(run_of(tmp_path, [failing(0, worker="", thread="MainThread", tracers=[], **place)]))
    assert trial(found, document, "default--r0")["errors"][0]["who"] == said


def test_a_trial_tells_who_failed_who_held_what_and_how_to_see_it_again(tmp_path: Path) -> None:
    found, document = embedded(run_of(tmp_path, [failing(0)]))
    told = trial(found, document, "default--r0")
    [error] = told["errors"]
    assert error["who"] == "drafter-1 failed in attention, step 0, while drafter-0 was tracing in mask."
    assert [title for title, _, _ in error["stacks"]] == ["drafter-1: failed", "drafter-0: was tracing"]
    assert error["stacks"][0][1] == "torch/_dynamo/eval_frame.py:1120 in compile_wrapper"
    assert (error["at"], error["lane"]) == (399_999, 2)
    assert error["held"][0] == [
        "drafter-0",
        "step › forward",
        "compile lock",
        "",
        "compile frame, tracing: the FX flag is its own",
    ]
    assert ["seed", "0"] in told["facts"]
    assert ["schedule", "none"] in told["facts"]
    assert told["commands"][0][1].endswith("--only lock=none --repeats 1")
    timeline = pack.inflated(dict(found.blocks)[f"block-{document['timelines']['default--r0']}"])
    assert [lane["thread"] for lane in timeline["lanes"]] == ["target-0", "drafter-0", "drafter-1", "drafter-2"]


def test_without_a_log_it_says_so(tmp_path: Path) -> None:
    _, document = embedded(run_of(tmp_path, [failing(0)], logs=False))
    assert document["timelines"] == {}
    assert document["why"] == {"default--r0": "the run folder holds no event log of this trial"}


def test_logs_that_are_too_long_are_left_to_their_own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run_of(tmp_path, [failing(0), row(GATE, 0)])
    write_events(Path(data.source.path), "default--r0", long_log(3_000))
    monkeypatch.setattr(embedding, "MOST_LOG_BYTES", 100_000)
    _, document = embedded(data)
    assert set(document["timelines"]) == {"lock=compile_gate--r0"}
    assert document["why"] == {"default--r0": "left out to keep this file small"}
    page = build_trial_page(read_run(data.source.path), "default--r0")
    assert set(json.loads(page.embedded.data)["timelines"]) == {"default--r0"}


def test_a_damaged_log_is_drawn_as_far_as_it_is_whole(tmp_path: Path) -> None:
    data = run_of(tmp_path, [failing(0)])
    log = Path(data.source.path) / "trials" / "default--r0" / "events.jsonl"
    text = log.read_text()
    log.write_text("[" * 5_000 + "\n" + text + '{"t": 1, "th"')
    page = build_page(read_run(data.source.path))
    document = json.loads(page.embedded.data)
    assert "default--r0" in document["timelines"]
    assert any("default--r0/events.jsonl: 1 line that is no event; left out." in note for note in page.left_out)


def test_ids_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"t":1}\n')
    _, document = embedded(run_of(tmp_path, [{**failing(0), "trial": "../.."}], logs=False))
    assert document["timelines"] == {}
    assert document["trials"][0] == [[0], ["../.."]]


def test_the_page_of_one_trial(tmp_path: Path) -> None:
    data = run_of(tmp_path, [failing(0), row(GATE, 0)])
    page = build_trial_page(data, f"{data.run_dir}/trials/default--r0/")
    assert page.sentence == "This trial failed: FX-tracing errors."
    assert (page.trial, page.tone) == ("default--r0", "unsafe")
    assert '"only":"default--r0"' in render(page)
    assert build_trial_page(data, "lock=compile_gate--r0").sentence == "This trial ended well."
    with pytest.raises(UserError, match=r'has no trial default--r1 \(did you mean "default--r0"\?\)'):
        build_trial_page(data, "default--r1")
