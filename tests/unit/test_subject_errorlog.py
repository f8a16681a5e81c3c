"""Each error of a trial is on the disk at once, whatever becomes of the disk, and of the process."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.causes import MOST_ERRORS
from harness.core.errorfile import NAME, read_errors
from harness.subject.errorlog import ErrorLog
from harness.subject.identity import Threads
from harness.subject.record import Trial


def trial_in(folder: Path) -> Trial:
    trial = Trial()
    trial.tell = ErrorLog(folder, 7).append
    return trial


def fail(trial: Trial, text: str, at: int = 1) -> None:
    try:
        raise ValueError(text)
    except ValueError as error:
        trial.error(error, Threads().current(), "drafter-0", at)


def test_an_error_is_there_whole_as_soon_as_it_is_recorded(tmp_path: Path) -> None:
    trial = trial_in(tmp_path)
    fail(trial, "planted \u2603\n", 3_000_000_000)
    (told,) = read_errors(tmp_path)
    assert told.pop("clock_start_ns") == 7
    assert "torch" in told
    del told["torch"]
    assert told == trial.errors[0].as_json()
    assert "planted" in told["traceback"]


def test_they_are_bounded_as_the_account_is(tmp_path: Path) -> None:
    trial = trial_in(tmp_path)
    for _ in range(MOST_ERRORS + 3):
        fail(trial, "planted")
    assert (len(read_errors(tmp_path)), trial.errors_dropped) == (MOST_ERRORS, 3)


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    log, gate = ErrorLog(tmp_path, 0), threading.Barrier(8, timeout=30)

    def write(number: int) -> None:
        gate.wait()
        for step in range(20):
            log.append({"label": "error", "at_s": float(step), "worker": f"w-{number}", "traceback": "x" * 20_000})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(read_errors(tmp_path)) == 160


def test_a_program_in_another_folder_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trial = trial_in(Path("."))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    fail(trial, "planted")
    assert len(read_errors(tmp_path)) == 1


def test_a_full_disk_hides_no_error_and_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial, write = trial_in(tmp_path), os.write
    fail(trial, "first")

    def half(fd: int, data: bytes) -> int:
        return write(fd, data[: len(data) // 2])

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for stand_in, text in ((half, "second"), (full, "third")):
        with monkeypatch.context() as patch:
            patch.setattr("harness.subject.errorlog.os.write", stand_in)
            fail(trial, text)
    fail(trial, "fourth")
    assert [one["message"] for one in read_errors(tmp_path)] == ["first", "fourth"]
    assert [one.message for one in trial.errors] == ["first", "second", "third", "fourth"]
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert all(f"ValueError: {text}" in said for text in ("second", "third")), "their tracebacks are in the output"


def test_a_program_without_descriptors_or_output_still_gets_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    trial = trial_in(tmp_path)
    monkeypatch.setattr("harness.subject.errorlog.os.open", none_left)
    monkeypatch.setattr("sys.stderr", None)
    fail(trial, "planted")
    assert [one.message for one in trial.errors] == ["planted"]


def test_a_trial_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fail(Trial(), "planted")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def split(tmp_path: Path) -> Any:
    """The trial's process of `lock = "process"`, whose drafter has a folder of its own."""
    from harness.subject.split import SplitPipeline

    found = SplitPipeline({"folder": str(tmp_path)})
    found._ctx = SimpleNamespace(trial=trial_in(tmp_path), log=SimpleNamespace(start_ns=7 - 2_000_000_000))  # type: ignore[assignment]
    found._places = [("drafter-0", "cpu")]  # type: ignore[list-item]
    (tmp_path / "drafter-0").mkdir()
    return found


def test_the_errors_of_a_drafters_process_that_died_are_the_trials(split: Any, tmp_path: Path) -> None:
    fail(trial_in(tmp_path / "drafter-0"), "planted", 1_000_000_000)
    with pytest.raises(RuntimeError, match="left no result"):
        split._merge(0, tmp_path / "drafter-0", -6)
    (error,) = split._ctx.trial.errors
    assert (error.message, error.at_ns) == ("planted", 3_000_000_000), "by the clock of the trial's process"
    assert "ValueError: planted" in error.traceback
    assert [one["at_s"] for one in read_errors(tmp_path)] == [3.0], "and are kept if that dies as well"


def test_a_drafters_process_with_an_account_leaves_no_second_one(split: Any, tmp_path: Path) -> None:
    folder = tmp_path / "drafter-0"
    child = trial_in(folder)
    fail(child, "planted", 1_000_000_000)
    theirs = {**child.tally("drafter-0", "drafter").as_json()}
    facts = {"clock_start_ns": 7, "steps": []}
    document = {"workers": {"drafter-0": theirs}, "facts": facts, "problems": [], "outcome": "error"}
    document["errors"] = [one.as_json() for one in child.errors]
    (folder / "result.json").write_text(json.dumps(document), "utf-8")
    split._merge(0, folder, 0)
    assert [one.message for one in split._ctx.trial.errors] == ["planted"]
    assert not (folder / NAME).exists()
