"""A full disk on the control side: one line, and nothing that was there is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harness import cli
from harness.control import rundir, watch_hangs
from harness.control.request import TrialRequest
from harness.control.rows import Ending, trial_row
from harness.control.watch_rows import HANG, Process, scenario_of
from harness.core.errors import RunFolderError
from harness.core.eventfile import LINES_NAME, RAW_NAME, merge


def full(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_events_that_cannot_be_sorted_stay_as_they_came_and_the_row_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / RAW_NAME).write_bytes(b'{"t":1,"k":"a"}\n')
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        merge(tmp_path)
    row = trial_row(TrialRequest("t", scenario_of("x"), 0, tmp_path), Ending(0, "exited", 1.0, 0.0))
    assert [problem["text"] for problem in row["problems"]] == [
        "its events could not be sorted: No space left on device; they are in events.bin as they came"
    ]
    assert [path.name for path in tmp_path.iterdir()] == [RAW_NAME]
    monkeypatch.undo()
    assert merge(tmp_path) == (1, 0)
    assert (tmp_path / LINES_NAME).exists()


def test_a_command_that_meets_a_full_disk_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: no room on the disk: No space left on device; make room and try again, a run with --resume\n"
    )


def test_a_run_folder_without_room_for_its_lock_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(RunFolderError, match=r"cannot write to run folder .*: No space left on device"):
        rundir.open_run(tmp_path / "run", resume=False)


@pytest.mark.parametrize(("kill", "said"), [(False, "it still runs: Ctrl-C ends it"), (True, "are ended")])
def test_a_hang_that_is_reported_says_what_becomes_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: bool, said: str
) -> None:
    monkeypatch.setattr(watch_hangs, "pyspy_dump", lambda *_: None)
    monkeypatch.setattr(watch_hangs, "_dump", lambda process, hung: None)
    (tmp_path / HANG).write_text('{"label": "hang", "reason": "slow", "at_s": 1.0}')

    class Program:
        pid, killed = 1, False

        def kill(self) -> None:
            self.killed = True

    program, told = Program(), list[str]()
    watch = watch_hangs.HangWatch(program, 30.0, kill=kill, say=told.append)  # type: ignore[arg-type]
    watch.look([Process(tmp_path, 1, 0, "x.py", "", "python", "3.11", 0.0)])
    assert said in told[-1]
    assert program.killed is kill
