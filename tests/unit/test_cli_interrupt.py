"""Ctrl-C at any moment of a command: one word, exit 3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli
from harness.control import session

ROOT = Path(__file__).resolve().parents[2]


def test_an_interrupt_that_leaves_a_command_is_exit_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the trials begin and after the last one has ended, when no handler of ours is there."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "open_session", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run"])
    assert ended.value.code == 3
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interrupt_during_an_import_is_exit_3_too(tmp_path: Path) -> None:
    """There `python -m` would end by SIGINT, however well the exception was caught."""
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "from harness import cli\n"
        "from harness.control import session\n"
        "def interrupted(*_):\n"
        "    exec('raise KeyboardInterrupt')\n"  # as dataclasses do, which is where an import spends its time
        "session.open_session = interrupted\n"
        "sys.argv = ['harness', 'run']\n"
        "cli.main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (3, "interrupted\n")
