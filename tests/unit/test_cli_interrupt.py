"""Ctrl-C at any moment of a command: one word, exit 3."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import cli
from harness.control import session
from harness.control.interrupts import Interrupts

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_doctor_that_is_stopped_leaves_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    """Stopped while the subject's doctor, which never ends by itself and has made a folder too, is asked."""
    fake = tmp_path / "python"
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = - ] && exec "{sys.executable}" -\nmktemp -d && echo > "{tmp_path}/asked"\nexec sleep 60\n'
    )
    fake.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    doctor = subprocess.Popen(
        [sys.executable, "-m", "harness", "doctor", "--python", str(fake)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "asked").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert list((tmp_path / "tmp").glob("harness-*"))
        doctor.send_signal(number)
        said = doctor.communicate(timeout=30)[1]
    finally:
        doctor.kill()
        doctor.wait()
    assert (doctor.returncode, said) == (3, "interrupted\n")
    assert not list((tmp_path / "tmp").iterdir())


def test_a_sigterm_to_the_process_and_to_its_group_is_one() -> None:
    """As `timeout` sends it, where a second one would end the process on the spot."""
    interrupts = Interrupts(lambda: None)
    with interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert interrupts.count == 1
