"""Reading a run folder that may be half-written, old or damaged: what is whole is read, the rest is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_folder import ENVIRONMENT, write_folder
from fake_runs import row

from harness.core.errors import RunFolderError
from harness.core.scenario import Scenario
from harness.report import source
from harness.report.sound import Sounder, UnsoundError
from harness.report.source import open_source


def read(path: Path) -> tuple[list[str], list[str]]:
    """(trials, notes)."""
    opened = open_source(path)
    trials = [found["trial"] for found in opened.rows()]
    return trials, opened.notes


def lines(path: Path, *given: bytes) -> Path:
    (path / "results.jsonl").write_bytes(b"".join(given))
    return path


def line(*arguments: Any, **fields: Any) -> bytes:
    return json.dumps(row(*arguments, **fields)).encode() + b"\n"


def test_a_whole_folder_has_no_notes(tmp_path: Path) -> None:
    write_folder(tmp_path, [row(None, 0), row(None, 1)])
    assert read(tmp_path) == (["default--r0", "default--r1"], [])


def test_rows_are_those_of_the_strict_reader(tmp_path: Path) -> None:
    from harness.control.results import read_rows

    write_folder(tmp_path, [row(None, 1, "interrupted"), row(None, 0), row(None, 1), row(None, 1, "interrupted")])
    strict = [(found["trial"], found["outcome"]) for found in read_rows(tmp_path)]
    tolerant = [(found["trial"], found["outcome"]) for found in open_source(tmp_path).rows()]
    assert tolerant == strict == [("default--r0", "ok"), ("default--r1", "ok")]


@pytest.mark.parametrize(
    "damaged",
    [b"garbage\n", b"[1, 2]\n", b'{"trial": 3}\n', b"\xff\xfe\n", b'{"no": "trial"}\n', b"[" * 100_000 + b"\n"],
)
def test_a_damaged_line_is_left_out_and_named(tmp_path: Path, damaged: bytes) -> None:
    write_folder(tmp_path, [])
    lines(tmp_path, line(None, 0), damaged, line(None, 1))
    assert read(tmp_path) == (
        ["default--r0", "default--r1"],
        ["results.jsonl, line 2: not a row of results; left out."],
    )


def test_a_cut_last_line_is_left_out_and_named(tmp_path: Path) -> None:
    write_folder(tmp_path, [])
    lines(tmp_path, line(None, 0), line(None, 1)[:-20])
    assert read(tmp_path) == (["default--r0"], ["results.jsonl, line 2: cut in its middle; left out."])


def test_a_last_line_that_lacks_its_line_feed_counts(tmp_path: Path) -> None:
    write_folder(tmp_path, [])
    lines(tmp_path, line(None, 0).rstrip())
    assert read(tmp_path) == (["default--r0"], [])


def test_many_damaged_lines_are_one_note(tmp_path: Path) -> None:
    write_folder(tmp_path, [])
    lines(tmp_path, *[b"x\n"] * 1_000, line(None, 0))
    assert read(tmp_path) == (
        ["default--r0"],
        ["results.jsonl, lines 1, 2, 3, 4, 5 and 995 more: not a row of results; left out."],
    )


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LONGEST_LINE", 5_000)
    write_folder(tmp_path, [])
    lines(tmp_path, line(None, 0), line(None, 1, reason="x" * 20_000), line(None, 2))
    assert read(tmp_path) == (
        ["default--r0", "default--r2"],
        ["results.jsonl, line 2: not a row of results; left out."],
    )


def test_rows_that_cannot_be_counted_are_named(tmp_path: Path) -> None:
    strange = [
        {**row(None, 1), "scenario": {"lock": "none", "colour": "red"}},
        {**row(None, 2), "outcomes": ["fx_eror"]},
        {**row(None, 3), "schema": 2},
        {**row(None, 4), "outcomes": []},
        {**row(None, 5), "scenario": 3},
    ]
    write_folder(tmp_path, [row(None, 0), *strange])
    trials, notes = read(tmp_path)
    assert trials == ["default--r0"]
    for number, words in enumerate(["colour", "fx_error", "schema 2", "no outcome", "no scenario"], start=2):
        assert any(f"line {number}:" in note and words in note for note in notes), words


def test_a_row_of_an_older_harness_is_filled_up() -> None:
    old = {"trial": "t", "scenario_id": "default", "scenario": {"lock": "per_call"}, "outcome": "ok"}
    found = Sounder().sound(old)
    assert found["scenario"] == Scenario(lock="per_call").to_dict()
    assert (found["outcomes"], found["errors"], found["fx_errors"], found["startup_s"]) == (["ok"], [], 0, None)


@pytest.mark.parametrize("wrong", [None, "text", [], {}, True, float("nan"), float("inf"), 10**400, -5, [[]], [None]])
@pytest.mark.parametrize("field", sorted({*row(), "problems", "errors_dropped"} - {"trial", "scenario"}))
def test_no_value_of_a_field_breaks_a_reader(field: str, wrong: Any) -> None:
    from harness.report.gather import gather

    try:
        found = Sounder().sound({**row(), field: wrong})
    except UnsoundError:
        assert field in ("schema", "outcomes", "outcome", "scenario_id")
        return
    gather([found]).of_run([])


def test_texts_of_a_row_are_bounded() -> None:
    error = {
        "label": "error",
        "message": "m" * 10**6,
        "traceback": "t" * 10**6,
        "tracers": [{"stack": "s" * 10**6}] * 99,
    }
    found = Sounder().sound(row(None, 0, "error", errors=[error] * 500, reason="r" * 10**6))
    assert len(json.dumps(found)) < 200 * (9 * 65_000 + 6_000)
    assert len(json.dumps(found["errors"][0])) < 9 * 65_000
    assert found["errors"][0]["tracers_dropped"] == 91
    assert "characters left out" in found["reason"]


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("matrix.toml", "matrix.toml is missing"),
        ("environment.json", "environment.json is missing"),
        ("results.jsonl", "results.jsonl is missing"),
    ],
)
def test_a_half_written_folder_is_read(tmp_path: Path, missing: str, words: str) -> None:
    write_folder(tmp_path, [row()])
    (tmp_path / missing).unlink()
    _, notes = read(tmp_path)
    assert [note for note in notes if words in note] == notes


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("matrix.toml", "schema = 1\n[axes]\nlok = []\n", "lok"),
        ("matrix.toml", "[[[", "matrix.toml"),
        ("environment.json", "{", "not JSON"),
        ("environment.json", "{}", "schema"),
        ("environment.json", "[" * 100_000, "nested"),
    ],
)
def test_a_damaged_file_beside_the_rows_is_said(tmp_path: Path, name: str, text: str, words: str) -> None:
    write_folder(tmp_path, [row()])
    (tmp_path / name).write_text(text)
    trials, notes = read(tmp_path)
    assert trials == ["default--r0"]
    assert len(notes) == 1
    assert words in notes[0]


def test_a_newer_folder_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, [row()])
    (tmp_path / "environment.json").write_text(json.dumps({**ENVIRONMENT, "schema": 2}))
    with pytest.raises(RunFolderError, match="newer harness"):
        open_source(tmp_path)


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "run-1").mkdir()
    for name, words in (("", "not a run folder"), ("file", "is a file"), ("run-2", 'did you mean "run-1"')):
        with pytest.raises(RunFolderError, match=words):
            open_source(tmp_path / name)


@pytest.mark.parametrize("trial", ["../secret", "..", "", "a/b", "x\0y", "x" * 5_000])
def test_a_trials_name_does_not_lead_out_of_the_folder(tmp_path: Path, trial: str) -> None:
    write_folder(tmp_path, [row()])
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "stacks.txt").write_text("secret")
    (tmp_path / "trials").mkdir()
    assert open_source(tmp_path).trial_file(trial, "stacks.txt", 100) == ""


def test_a_file_of_a_trial_is_cut_at_either_end(tmp_path: Path) -> None:
    write_folder(tmp_path, [row()])
    (tmp_path / "trials" / "t").mkdir(parents=True)
    (tmp_path / "trials" / "t" / "stacks.txt").write_text("a" * 50 + "b" * 50)
    opened = open_source(tmp_path)
    assert opened.trial_file("t", "stacks.txt", 100) == "a" * 50 + "b" * 50
    assert opened.trial_file("t", "stacks.txt", 10) == "a" * 10 + "\n[… 90 bytes left out …]"
    assert opened.trial_file("t", "stacks.txt", 10, True) == "[… 90 bytes left out …]\n" + "b" * 10
    assert opened.trial_file("t", "nothing.txt", 10) == ""


def test_the_last_events_of_many_threads_are_kept() -> None:
    events = [{"t": at, "th": f"t{at % 60}", "id": at % 60, "w": "", "k": "step.done"} for at in range(500)]
    assert Sounder().sound(row(None, 0, "hang", last_events=events))["last_events"] == events[-200:]
