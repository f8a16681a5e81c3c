"""The pytest plugin with true subjects: end to end, under xdist and pytest-timeout, on Ctrl-C and kill -9."""

from __future__ import annotations

import json
import signal
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from tagged import Tagged, needs_proc

pytestmark = [pytest.mark.slow, needs_proc]

PLUGIN = "harness.pytest_plugin"
NOTHING = (
    'schema = 1\n[defaults]\nworkload = "nothing"\nsteps = 2\nrepeats = 2\n[axes]\nlock = ["none", "first_step"]\n'
    '[[include]]\nworkload = "faulty_workloads:FailsInSetup"\n'
)
HANGS = (
    "schema = 1\n[defaults]\nrepeats = 2\ntimeout = 300\nhang_timeout = 300\n"
    '[axes]\nworkload = ["faulty_workloads:Hangs"]\n'
)


class Session(Tagged):
    """A pytest in a process of its own."""

    def __init__(self, folder: Path, matrix: str, *more: str) -> None:
        (folder / "mine.toml").write_text(matrix)
        self.out = folder / "out"
        named = [] if any(entry.value == PLUGIN for entry in entry_points(group="pytest11")) else ["-p", PLUGIN]
        super().__init__([sys.executable, "-m", "pytest", *named, "mine.toml", "--harness-out", "out", *more], folder)

    def wait_until_a_subject_runs(self) -> None:
        """Until the workload of a trial has begun."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self.end()}")
            if any((trial / "ready").exists() for trial in (self.out / "trials").glob("*")):
                return
            time.sleep(0.05)
        raise AssertionError("no subject ran")

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in file order."""
        return [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_end_to_end(tmp_path: Path, more: tuple[str, ...]) -> None:
    session = Session(tmp_path, NOTHING, "--junitxml=j.xml", "--harness-jobs", "2", *more)
    code, said = session.end()
    assert code == 1, said
    assert "1 failed, 2 passed" in said
    assert "incomplete: 2 setup_error in 2 trials" in said
    assert sorted(row["outcome"] for row in session.rows()) == ["ok"] * 4 + ["setup_error"] * 2
    assert len({row["trial"] for row in session.rows()}) == 6
    assert (session.out / "report.html").exists()
    assert "report:     out/report.html" in said
    assert session.left() == []


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_time_limit_ends_the_subject(tmp_path: Path, method: str) -> None:
    pytest.importorskip("pytest_timeout")
    # The limit is for the whole test, start server and imports of torch included.
    session = Session(tmp_path, HANGS, "-o", "timeout=30", "--timeout-method", method)
    session.wait_until_a_subject_runs()
    code, said = session.end()
    assert code == 1, said
    assert "Timeout" in said
    assert session.left() == []
    if method == "signal":  # with the other method pytest itself is ended, and cannot write a row
        assert [row["outcome"] for row in session.rows()] == ["interrupted"]
        assert "1 failed" in said


def test_ctrl_c_ends_the_subject(tmp_path: Path) -> None:
    session = Session(tmp_path, HANGS)
    session.wait_until_a_subject_runs()
    session.process.send_signal(signal.SIGINT)
    code, said = session.end()
    assert code == pytest.ExitCode.INTERRUPTED, said
    assert [row["outcome"] for row in session.rows()] == ["interrupted"]
    assert "run folder: out" in said
    assert session.left() == []


def test_a_killed_session_leaves_no_process(tmp_path: Path) -> None:
    """Its workers of pytest-xdist included."""
    session = Session(tmp_path, HANGS, "-n", "1")
    session.wait_until_a_subject_runs()
    session.process.kill()
    session.process.wait()
    assert session.left() == []
    session.end()
