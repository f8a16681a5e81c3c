"""`harness report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_events import collision, write_events
from fake_folder import ENVIRONMENT, write_folder
from fake_runs import row

from harness import cli

MATRIX = 'schema = 1\n[axes]\nlock = ["none"]\n'


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def test_the_newest_run_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("reports/quick-1"), [row()], matrix=MATRIX)
    Path("reports/latest").symlink_to("quick-1")
    assert report(capsys) == (0, "reports/quick-1/report.html\n", "")
    assert "<!DOCTYPE html>" in Path("reports/quick-1/report.html").read_text("utf-8")


def test_another_run_and_another_file(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("run"), [row()], matrix=MATRIX)
    assert report(capsys, "run", "--out", "x.html") == (0, "x.html\n", "")
    assert Path("x.html").exists()
    assert not Path("run/report.html").exists()


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_folder(Path("run"), [row()], matrix=None)
    code, out, err = report(capsys, "run", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document == {
        "report": str(tmp_path / "run" / "report.html"),
        "run_dir": str(tmp_path / "run"),
        "bytes": Path("run/report.html").stat().st_size,
        "answer": "No failure in 1 trial, but too few trials to call anything safe.",
        "left_out": ["matrix.toml is missing: nothing is held against expectations, and nothing can be rerun."],
    }


def test_what_was_left_out_is_also_said_on_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("run"), [row(), {**row(None, 1), "outcomes": ["\x1b[2J"]}])
    code, out, err = report(capsys, "run")
    assert (code, out) == (0, "run/report.html\n")
    assert err.startswith("note: results.jsonl, line 2: has the outcome")
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is no reports/latest"),
        (["nowhere"], "nowhere: no such run folder"),
        (["rnu"], 'did you mean "run"?'),
        (["file"], "is a file"),
        (["."], "is not a run folder"),
        (["newer"], "newer harness"),
        (["run", "--out", "run"], "is a folder"),
        (["run", "--out", "no/where.html"], "cannot write no/where.html"),
        (["run", "run"], "harness report --help"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    write_folder(Path("run"), [row()])
    write_folder(Path("newer"), [row()])
    Path("newer/environment.json").write_text(json.dumps({**ENVIRONMENT, "schema": 9}))
    Path("file").write_text("")
    code, out, err = report(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err


def test_one_trial_has_a_page_in_its_own_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_folder(Path("run"), [row()], matrix=MATRIX)
    write_events(Path("run"), "default--r0", collision())
    assert report(capsys, "run", "--trial", "default--r0") == (0, "run/trials/default--r0/report.html\n", "")
    code, out, _ = report(capsys, "run", "--trial", "default--r0", "--out", "x.html", "--json")
    document = json.loads(out)
    assert (code, document["report"], document["trial"]) == (0, str(tmp_path / "x.html"), "default--r0")
    assert document["answer"] == "This trial ended well."


def test_a_trial_without_a_folder_has_its_page_beside_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("run"), [row()], matrix=MATRIX)
    assert report(capsys, "run", "--trial", "default--r0") == (0, "run/trial.html\n", "")


def test_a_trial_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("run"), [row()], matrix=MATRIX)
    code, out, err = report(capsys, "run", "--trial", "default--r7")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith('error: run has no trial default--r7 (did you mean "default--r0"?)')


@pytest.mark.parametrize("more", [[], ["--trial", "001-plan"], ["--summary"], ["--out", "x.html"]])
def test_the_trials_of_a_plan_are_no_run(capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    """`harness reproduce` writes no rows; a page of its folder would say that nothing ended and nothing hung."""
    for name in ("001-plan", "002-plan", "003-counterfactual"):
        (Path("repro/trials") / name).mkdir(parents=True)
    code, out, err = report(capsys, "repro", *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: repro holds the trials of a plan (harness reproduce)")
    assert "harness explain repro/trials/001-plan, or with harness trace, upstream or replay" in err
    assert not list(Path().rglob("*.html"))
    Path("repro/reproduce.json").write_text(json.dumps({"trial": "/elsewhere/repro/trials/002-plan"}))
    assert "harness explain repro/trials/002-plan," in report(capsys, "repro", *more)[2], "the one that was reproduced"


def test_a_run_whose_rows_are_lost_is_still_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    (Path("run/trials/default--r0")).mkdir(parents=True)
    assert report(capsys, "run")[0] == 0
