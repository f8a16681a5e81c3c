"""`harness.load`: frames of a run folder, their columns, and what is no run folder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest
from fake_runs import FX_ERROR, fx_row, row

import harness
from harness import cli
from harness.control import rundir
from harness.control.request import Row
from harness.core.axes import AXES
from harness.core.errors import RunFolderError
from harness.core.scenario import Scenario
from harness.frames import ERROR_COLUMNS, EVENT_COLUMNS, TRIAL_COLUMNS

ROOT = Path(__file__).resolve().parents[2]
EVENTS = [
    {"t": 1_000_000, "th": "MainThread", "id": 1, "w": "", "k": "subject.start"},
    {"t": 2_000_000, "th": "drafter-0", "id": 2, "w": "drafter-0", "k": "region.enter", "r": "mask"},
    {"t": 2_500_000, "th": "drafter-0", "id": 2, "w": "drafter-0", "k": "compile.end", "what": "frame", "ok": True},
    {
        "t": 3_000_000,
        "th": "drafter-0",
        "id": 2,
        "w": "drafter-0",
        "k": "step.done",
        "step": 0,
        "tokens": 7,
        "loss": 2.5,
    },
    {
        "t": 3_500_000,
        "th": "target-0",
        "id": 3,
        "w": "target-0",
        "k": "step.done",
        "step": 0,
        "tokens": 7,
        "loss": None,
    },
]

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A run folder with these rows."""

    def make(*rows: Row) -> Path:
        with rundir.open_run(tmp_path / "run", resume=False) as folder:
            folder.open_results(lambda note: None)
            folder.write("environment.json", rundir.dump_environment({"torch": "2.11.0+cpu"}))
            for found in rows:
                folder.append(found)
        return tmp_path / "run"

    return make


def dtypes(frame: pd.DataFrame) -> dict[str, str]:
    """As the documentation names them: what text is called depends on pandas' version."""
    return {name: "str" if str(dtype) in ("object", "str") else str(dtype) for name, dtype in frame.dtypes.items()}


def documented(columns: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    return {name: "str" if dtype == "object" else dtype for name, (dtype, _) in columns.items()}


def test_a_row_a_trial_with_its_axes(write: Write) -> None:
    scenario = Scenario(lock="first_step", drafters=2)
    run = harness.load(write(row(scenario, 0), fx_row(scenario, 1), row(scenario, 2, "out_of_memory")))
    trials = run.trials
    assert list(trials.repeat) == [0, 1, 2]
    assert list(trials.outcome) == ["ok", "fx_error", "out_of_memory"]
    assert list(trials.failed) == [False, True, False]
    assert list(trials.conclusive) == [True, True, False]
    assert (trials.lock == "first_step").all()
    assert (trials.drafters == 2).all()
    assert list(trials.errors) == [0, 1, 0]
    assert trials.startup_s.isna().tolist() == [False, True, False]
    assert run.environment["torch"] == "2.11.0+cpu"


def test_an_error_has_both_threads(write: Write) -> None:
    run = harness.load(write(fx_row(Scenario())))
    (error,) = run.errors.to_dict("records")
    assert (error["worker"], error["tracer"]) == ("drafter-1", "drafter-0")
    assert "the traceback" in error["traceback"]
    assert "the stack" in error["tracer_stack"]
    assert error["fingerprint"] == run.trials.fingerprint[0] != ""


def test_events_are_read_by_trial(write: Write) -> None:
    first, second = row(Scenario(), 0), row(Scenario(), 1)
    path = write(first, second)
    log = path / "trials" / first["trial"] / "events.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    events = harness.load(path).events
    assert list(events) == [first["trial"], second["trial"]]
    frame = events[first["trial"]]
    assert list(frame.t_s) == [0.001, 0.002, 0.0025, 0.003, 0.0035]
    assert list(frame.region) == ["", "mask", "", "", ""]
    assert list(frame.tokens.fillna(-1)) == [-1, -1, -1, 7, 7]
    assert list(frame.loss.isna()) == [True, True, True, False, True]
    assert list(frame.more) == [{}, {}, {"ok": True}, {}, {}]
    assert len(events[second["trial"]]) == 0
    everything = events.all()
    assert list(everything.columns) == ["trial", *EVENT_COLUMNS]
    assert set(everything.trial) == {first["trial"]}
    with pytest.raises(KeyError, match=r"no such trial.*did you mean"):
        events["defaul--r0"]


@pytest.mark.parametrize("filled", [True, False])
def test_columns_and_their_types_are_as_documented(write: Write, filled: bool) -> None:
    run = harness.load(write(*([fx_row(Scenario())] if filled else [])))
    axes = {axis.name: "int64" if axis.kind == "int" else "str" for axis in AXES}
    assert dtypes(run.trials) == {**documented(TRIAL_COLUMNS), **axes}
    assert dtypes(run.errors) == documented(ERROR_COLUMNS)
    assert dtypes(run.events.all()) == {"trial": "str", **documented(EVENT_COLUMNS)}


def test_the_page_on_frames_has_every_column() -> None:
    page = (ROOT / "docs" / "frames.md").read_text()
    for title, columns in (("trials", TRIAL_COLUMNS), ("errors", ERROR_COLUMNS), ("events", EVENT_COLUMNS)):
        part = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", part, re.MULTILINE)
        assert {name: (dtype, meaning) for name, dtype, meaning in rows} == columns


def test_a_cut_last_line_is_passed_over(write: Write) -> None:
    path = write(row(Scenario(), 0), row(Scenario(), 1))
    text = (path / "results.jsonl").read_bytes()
    (path / "results.jsonl").write_bytes(text[:-20])
    assert len(harness.load(path).trials) == 1


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds no run"):
        harness.load(tmp_path)
    with pytest.raises(RunFolderError, match="nowhere is no run folder"):
        harness.load(tmp_path / "nowhere")
    (tmp_path / "plan" / "trials" / "001-plan").mkdir(parents=True)
    with pytest.raises(RunFolderError, match="plan holds the trials of a plan"):
        harness.load(tmp_path / "plan")
    (tmp_path / "results.jsonl").write_text("no row\n")
    with pytest.raises(RunFolderError, match="line 1: not a row"):
        harness.load(str(tmp_path))
    (tmp_path / "environment.json").write_text('{"schema": 99}')
    with pytest.raises(RunFolderError, match="newer harness"):
        harness.load(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"schema": 99}, '"schema" is 99, and this version reads 1'),
        ({"outcomes": ["exploded"]}, '"outcomes" is not a list of outcomes that this version knows'),
        ({"outcomes": []}, '"outcomes" is not a list of outcomes'),
        ({"scenario": {"lock": "every_stepp"}}, "its scenario is none that this version knows: .*every_step"),
        ({"scenario": {"colour": "red"}}, "its scenario is none that this version knows: .*colour"),
    ],
)
def test_a_row_that_the_report_does_not_count_is_no_trial(
    write: Write, capsys: pytest.CaptureFixture[str], wrong: Row, words: str
) -> None:
    bad = {**row(Scenario(), 1), **wrong}
    path = write(row(Scenario(), 0), bad)
    with pytest.raises(RunFolderError, match=f"results.jsonl: trial default--r1: {words}.*; move its line out of the file"):
        harness.load(path)
    with pytest.raises(SystemExit):
        cli.main(["report", str(path), "--csv", "-"])
    out, err = capsys.readouterr()
    assert "default--r1" not in out
    assert "line 2: " in err


def test_events_are_read_where_the_run_was_loaded_from(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from another working folder, and once the link by which it was named leads to another run."""
    trial = row(Scenario())
    path = write(trial)
    log = path / "trials" / trial["trial"] / "events.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    monkeypatch.chdir(tmp_path)
    Path("latest").symlink_to("run")
    run, linked = harness.load("run"), harness.load("latest")
    Path("latest").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(run.events[trial["trial"]]) == len(linked.events.all()) == len(EVENTS)
    assert run.path == linked.path == path.resolve()


def test_an_error_outside_of_the_workers_has_a_stage_and_no_step(write: Write) -> None:
    setup = {**FX_ERROR, "stage": "set-up", "worker": "", "step": 0}
    unknown = {**FX_ERROR, "step": None}
    errors = harness.load(write(row(Scenario(), 0, "fx_error", errors=[setup, unknown, FX_ERROR]))).errors
    assert list(errors.stage) == ["set-up", "", ""]
    assert list(errors.step.isna()) == [True, True, False]
    assert errors.step[2] == 0


def test_importing_the_package_is_light() -> None:
    script = "import sys, harness; assert not {'pandas', 'numpy', 'torch', 'harness.frames'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
