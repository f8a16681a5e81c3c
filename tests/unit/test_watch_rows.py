"""Rows of processes whose end nobody but they themselves could tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_watch_errors import UNFINISHED, event, logged, raised, wrongs
from test_watch_told import row

from harness.control.watch_rows import Process, process_row
from harness.report.watched import explain_commands

LIMIT_S = 60.0
SEGV = "Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):\n"


def child(folder: Path, stacks: str | None, *, pid: int = 0, killed: bool = False, signalled: str = "") -> dict[str, Any]:
    """The row of a followed process; by default of one that is not there."""
    folder.mkdir(exist_ok=True)
    if stacks is not None:
        (folder / "stacks.txt").write_text(stacks)
    process = Process(folder, pid, 0, "train.py", "1", "python", "3.11.7", 0.0)
    return process_row(process, program="train.py", status=None, killed=killed, signalled=signalled)


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("Segmentation fault", "SIGSEGV"),
        ("Aborted", "SIGABRT"),
        ("Bus error", "SIGBUS"),
        ("Illegal instruction", "SIGILL"),
        ("Floating point exception", "SIGFPE"),
        ("Floating-point exception", "SIGFPE"),
        ("something new", None),
    ],
)
def test_a_child_that_put_its_fatal_error_down_has_crashed(tmp_path: Path, what: str, number: str | None) -> None:
    found = child(tmp_path / "rank1-process-7", f"=== evidence of before\nFatal Python error: {what}\n\nThread 0x7f:\n")
    assert (found["outcome"], found["outcomes"]) == ("crash", ["crash"])
    assert found["reason"] == f"Fatal Python error: {what}"
    assert found["exit"]["signal"] == number
    assert wrongs(found)[0] == f"crash: Fatal Python error: {what}"
    assert explain_commands([found], "reports/a") == ["harness explain reports/a/trials/rank1-process-7"]


@pytest.mark.parametrize("stacks", [None, "", "=== hang at 3 s: says Fatal Python error: nothing\n"])
def test_a_child_that_said_nothing_is_interrupted(tmp_path: Path, stacks: str | None) -> None:
    found = child(tmp_path / "process-7", stacks)
    assert (found["outcome"], found["exit"]["how"]) == ("interrupted", "ended without a word")
    assert explain_commands([found], "reports/a") == []


def test_a_crash_before_the_watch_killed_the_others_is_one(tmp_path: Path) -> None:
    assert child(tmp_path / "process-7", SEGV, killed=True)["outcomes"] == ["crash"]
    assert child(tmp_path / "process-8", None, killed=True)["outcomes"] == ["interrupted"]
    assert child(tmp_path / "process-9", SEGV, signalled="SIGTERM")["outcomes"] == ["crash"]


def test_who_still_runs_has_not_crashed(tmp_path: Path) -> None:
    assert child(tmp_path / "process-7", SEGV, pid=os.getpid())["outcomes"] == ["ok"]


def test_an_error_before_the_crash_comes_first(tmp_path: Path) -> None:
    folder = logged(tmp_path, event("trainer-0", 1_500_000))
    row(tmp_path, errors=[raised()], outcomes=["error"], outcome="error", **UNFINISHED)
    found = child(folder, SEGV)
    assert found["outcomes"] == ["error", "crash"]
    (said,) = wrongs(found)
    assert said == (
        "trainer-0 ended by NotImplementedError: FlexAttention does not do this (train.py:15); "
        "then the process ended by SIGSEGV"
    )


def test_the_words_are_faulthandlers(tmp_path: Path) -> None:
    """Each of the five, by this Python."""
    raise_it = "import faulthandler, signal, sys; faulthandler.enable(); signal.raise_signal(int(sys.argv[1]))"
    for number in (11, 6, 7, 4, 8):
        command = [sys.executable, "-c", raise_it, str(number)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        found = child(tmp_path / f"process-{number}", said.stderr)
        assert found["exit"]["signal"] == {11: "SIGSEGV", 6: "SIGABRT", 7: "SIGBUS", 4: "SIGILL", 8: "SIGFPE"}[number]


@pytest.mark.parametrize("number", [24, 10, 14, 12, 26, 27, 29, 34, 40, 64])
def test_a_signal_of_any_kind_interrupts(tmp_path: Path, number: int) -> None:
    found = row(tmp_path, number, **UNFINISHED)
    assert found["outcomes"] == ["interrupted"]
    assert found["reason"] == f"the process ended by {found['exit']['signal']}"
    assert found["exit"]["signal"]
    labelled = row(tmp_path, number, outcomes=["error"], **UNFINISHED)
    assert labelled["outcomes"] == ["error"]


def test_a_pipe_that_nobody_reads_is_nothing_wrong(tmp_path: Path) -> None:
    found = row(tmp_path, 13, **UNFINISHED)
    assert (found["outcomes"], found["reason"], found["exit"]["signal"]) == (["ok"], "", "SIGPIPE")


def test_a_run_folder_that_looks_like_an_option_can_be_pasted(tmp_path: Path) -> None:
    found = child(tmp_path / "process-7", SEGV)
    assert explain_commands([found], "-odd") == ["harness explain ./-odd/trials/process-7"]
    assert json.dumps(found)
