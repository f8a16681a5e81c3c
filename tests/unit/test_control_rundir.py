"""The run folder: what is written stays, what is cut is kept aside, and nobody shares it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_runs import row

from harness.control import results, rundir
from harness.core.errors import RunFolderError
from harness.core.scenario import Scenario


def begun(path: Path, *, resume: bool = False, notes: list[str] | None = None) -> rundir.RunFolder:
    folder = rundir.open_run(path, resume=resume)
    folder.write(results.MATRIX, "schema = 1\n")
    folder.write(results.ENVIRONMENT, rundir.dump_environment({"torch": "2.11.0"}))
    folder.open_results((notes if notes is not None else []).append)
    return folder


def trials(path: Path) -> list[str]:
    return [found["trial"] for found in results.read_rows(path)]


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    with begun(tmp_path / "run") as folder:
        for repeat in range(3):
            folder.append(row(None, repeat))
    assert trials(tmp_path / "run") == ["default--r0", "default--r1", "default--r2"]


def test_a_second_run_is_refused_while_the_first_holds_the_folder(tmp_path: Path) -> None:
    with begun(tmp_path / "run"), pytest.raises(RunFolderError, match=r"in use by another run \(process \d+\)"):
        rundir.open_run(tmp_path / "run", resume=True)
    begun(tmp_path / "run", resume=True).close()


def test_a_begun_folder_needs_resume(tmp_path: Path) -> None:
    begun(tmp_path / "run").close()
    with pytest.raises(RunFolderError, match="--resume"):
        rundir.open_run(tmp_path / "run", resume=False)


def test_an_empty_folder_is_as_good_as_none(tmp_path: Path) -> None:
    begun(tmp_path).close()


@pytest.mark.parametrize("last", [b'{"trial": "default--r9", "outc', b"{", b"\xff\xfe"])
def test_a_cut_last_line_is_kept_aside_and_said(tmp_path: Path, last: bytes) -> None:
    with begun(tmp_path) as folder:
        folder.append(row(None, 0))
    with open(tmp_path / results.RESULTS, "ab") as file:
        file.write(last)
    assert trials(tmp_path) == ["default--r0"], "a reader passes over it"
    notes: list[str] = []
    with begun(tmp_path, resume=True, notes=notes) as folder:
        assert folder.finished == {"default--r0"}
        folder.append(row(None, 1))
    assert len(notes) == 1
    assert "results.cut" in notes[0]
    assert (tmp_path / rundir.CUT).read_bytes() == last + b"\n"
    assert trials(tmp_path) == ["default--r0", "default--r1"]


def test_a_row_that_lacks_only_its_line_feed_counts(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        folder.append(row(None, 0))
    whole = (tmp_path / results.RESULTS).read_bytes()
    (tmp_path / results.RESULTS).write_bytes(whole.rstrip(b"\n"))
    notes: list[str] = []
    with begun(tmp_path, resume=True, notes=notes) as folder:
        assert folder.finished == {"default--r0"}
        folder.append(row(None, 1))
    assert notes == []
    assert trials(tmp_path) == ["default--r0", "default--r1"]


def test_a_long_cut_line_is_found_whole(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        folder.append(row(None, 0))
    cut = b'{"trial": "' + b"x" * 200_000
    with open(tmp_path / results.RESULTS, "ab") as file:
        file.write(cut)
    begun(tmp_path, resume=True).close()
    assert (tmp_path / rundir.CUT).read_bytes() == cut + b"\n"
    assert trials(tmp_path) == ["default--r0"]


def test_a_bad_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    begun(tmp_path).close()
    (tmp_path / results.RESULTS).write_text('nonsense\n{"trial": "a", "outcome": "ok"}\n')
    with pytest.raises(RunFolderError, match=r"results\.jsonl, line 1"):
        begun(tmp_path, resume=True)


def test_an_interrupted_trial_is_not_finished_and_its_later_row_counts(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        folder.append(row(None, 0, "interrupted"))
        folder.append(row(None, 1))
        assert folder.finished == {"default--r1"}
    with begun(tmp_path, resume=True) as folder:
        assert folder.finished == {"default--r1"}
        folder.append(row(None, 0, "fx_error"))
    assert [(found["trial"], found["outcome"]) for found in results.read_rows(tmp_path)] == [
        ("default--r1", "ok"),
        ("default--r0", "fx_error"),
    ]


def test_a_finished_trial_has_one_row(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        folder.append(row(None, 0))
        folder.append(row(None, 0, "interrupted"))  # the interrupt came between its end and its being known
        with pytest.raises(ValueError, match="has a row already"):
            folder.append(row(None, 0))
    assert [found["outcome"] for found in results.read_rows(tmp_path)] == ["ok"]


def test_a_folder_of_a_newer_harness_is_refused(tmp_path: Path) -> None:
    begun(tmp_path).close()
    newer = json.dumps({"schema": results.SCHEMA + 1})
    (tmp_path / results.ENVIRONMENT).write_text(newer)
    for refuse in (lambda: rundir.open_run(tmp_path, resume=True), lambda: list(results.read_rows(tmp_path))):
        with pytest.raises(RunFolderError, match="newer harness"):
            refuse()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write to run folder"):
        rundir.open_run(tmp_path / "file" / "run", resume=False)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\0b"])
def test_a_trial_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with begun(tmp_path) as folder, pytest.raises(ValueError, match="unsafe trial id"):
        folder.trial_folder(name)


def test_a_fresh_trial_folder_is_empty(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        (folder.fresh_trial_folder("t") / "result.json").write_text("{}")
        assert list(folder.fresh_trial_folder("t").iterdir()) == []


def test_latest_points_at_a_run_in_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path("reports", name).mkdir(parents=True)
        assert rundir.point_latest(Path("reports", name)) == ""
        assert Path("reports", "latest").resolve().name == name
    Path("elsewhere").mkdir()
    assert rundir.point_latest(Path("elsewhere")) == ""
    assert Path("reports", "latest").resolve().name == "two"


def test_latest_is_left_alone_when_it_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reports", "latest").mkdir(parents=True)
    Path("reports", "one").mkdir()
    assert "left alone" in rundir.point_latest(Path("reports", "one"))


def test_two_runs_in_one_second_get_two_names(tmp_path: Path) -> None:
    first = rundir.default_folder("quick", tmp_path)
    first.mkdir()
    assert rundir.default_folder("quick", tmp_path) != first


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from fake_runs import row
from harness.control import rundir
path = Path(sys.argv[1])
with rundir.open_run(path, resume=True) as folder:
    folder.open_results(print)
    start = len(folder.finished)
    for repeat in range(start, 10_000):
        folder.append(row(None, repeat, message="x" * 5000))
        print(repeat, flush=True)
"""


def test_a_kill_loses_no_row_that_was_written(tmp_path: Path) -> None:
    """Odds: each of 8 kills falls at a moment of its own; a row that is printed was on disk before."""
    path = tmp_path / "run"
    dice = random.Random(1)
    command = [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)]
    for _ in range(8):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(dice.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        said = [line for line in process.stdout.read().splitlines() if line.isdigit()]
        process.wait(timeout=30)
        kept = trials(path)
        assert kept == [f"default--r{repeat}" for repeat in range(len(kept))]
        if said:
            assert len(kept) > int(said[-1])


def test_reading_needs_no_more_than_one_row_at_a_time(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        for repeat in range(50):
            folder.append(row(Scenario(), repeat))
    rows = results.read_rows(tmp_path)
    assert next(rows)["repeat"] == 0
    assert sum(1 for _ in rows) == 49
