"""A report and a trace read a run folder only: links out of it are left out and named, odd names of trials refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_folder import write_folder
from fake_runs import row
from typer.testing import CliRunner

from harness.cli import app
from harness.core.errors import RunFolderError
from harness.report.html import write_report
from harness.report.source import open_source
from harness.report.trial_events import read_trial_events

SECRET = "not of this run"


def _outside(folder: Path) -> Path:
    folder.mkdir()
    for name in ("stacks.txt", "stderr.txt", "result.json", "events.jsonl"):
        (folder / name).write_text(json.dumps({"t": 1, "k": "subject.start", "d": SECRET}) + "\n")
    return folder


@pytest.mark.parametrize("whole", [True, False])
def test_links_out_of_the_run_are_left_out_and_named(tmp_path: Path, whole: bool) -> None:
    other, run = _outside(tmp_path / "other"), tmp_path / "run"
    run.mkdir()
    failed = row(None, 0, "crash")
    write_folder(run, [failed])
    trial = run / "trials" / failed["trial"]
    trial.parent.mkdir(exist_ok=True)
    if whole:
        trial.symlink_to(other)
    else:
        trial.mkdir(exist_ok=True)
        for file in other.iterdir():
            (trial / file.name).symlink_to(file)
    source = open_source(run)
    for name in ("stacks.txt", "stderr.txt", "result.json"):
        assert source.trial_file(failed["trial"], name, 10_000) == ""
    assert list(source.events(failed["trial"])) == []
    assert source.notes[-1].endswith("links that lead out of the run folder; left out.")
    assert all(f"trials/{failed['trial']}/{name}" in source.notes[-1] for name in ("stacks.txt", "events.jsonl"))
    page = write_report(run).read_text("utf-8")
    assert "links that lead out of the run folder" in page
    if not whole:  # a folder that is named by its link is meant itself
        with pytest.raises(RunFolderError, match="leads out"):
            read_trial_events(trial)


def test_links_within_the_run_are_read(tmp_path: Path) -> None:
    write_folder(tmp_path, [row(None, 0), row(None, 1)])
    first, second = (tmp_path / "trials" / f"default--r{number}" for number in range(2))
    for folder in (first, second):
        folder.mkdir(parents=True, exist_ok=True)
    (first / "stacks.txt").write_text("here")
    (second / "stacks.txt").symlink_to(first / "stacks.txt")
    source = open_source(tmp_path)
    assert source.trial_file("default--r1", "stacks.txt", 100) == "here"
    assert source.notes == []


@pytest.mark.parametrize("name", ["..", ".", "", "trials/.."])
def test_a_trial_whose_name_leads_elsewhere_has_no_page(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, [{**row(None, 0), "trial": name.rpartition("/")[2]}])
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--trial", name])
    assert done.exit_code != 0
    assert sorted(tmp_path.rglob("*")) == before


def test_a_trial_that_is_a_link_gets_its_page_in_the_run(tmp_path: Path) -> None:
    other, run = _outside(tmp_path / "other"), tmp_path / "run"
    run.mkdir()
    write_folder(run, [row(None, 0)])
    (run / "trials").mkdir(exist_ok=True)
    (run / "trials" / "default--r0").symlink_to(other)
    assert CliRunner().invoke(app, ["report", str(run), "--trial", "default--r0"]).exit_code == 0
    assert (run / "trial.html").exists()
    assert not (other / "report.html").exists()
