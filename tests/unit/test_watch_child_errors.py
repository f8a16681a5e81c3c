"""An exception that ends a child of `multiprocessing` is seen, and what the child prints is what it would print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.subject.watch import endings
from harness.subject.watch.process import Watched
from harness.subject.watch.settings import Settings

LIMIT_S = 60.0
PROGRAM = """
import multiprocessing, sys

def fails(error):
    raise error

if __name__ == "__main__":
    if len(sys.argv) > 1:
        from harness.subject.watch import endings

        def seen(error, where):
            with open(sys.argv[1], "a") as file:
                print(where, repr(error), file=file)

        print(endings.see_children(seen), multiprocessing.Process.name.__doc__, file=sys.stderr)
    fork = multiprocessing.get_context("fork")

    def start(name, work, *args):
        child = fork.Process(target=work, args=args, name=name)
        child.start()
        child.join()
        assert child.name == name
        print(child.exitcode)

    try:
        1 / 0
    except ZeroDivisionError:  # a child that is forked while one is handled, and ends well
        start("in handler", len, "x")
        start("in handler, too", fails, ValueError("its own"))
    start("exits", fails, SystemExit(3))
    start("interrupted", fails, KeyboardInterrupt())
"""


def test_what_ended_a_child_is_told_and_printed_as_ever(tmp_path: Path) -> None:
    script, told = tmp_path / "program.py", tmp_path / "told.txt"
    script.write_text(PROGRAM)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    plain, watched = run(), run(str(told))
    assert plain.stdout.split() == ["0", "1", "3", "1"]
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout)
    first, _, rest = watched.stderr.partition("\n")
    assert (first, rest) == ("ok None", plain.stderr)
    assert "Process in handler, too:\nTraceback" in rest
    assert told.read_text() == "main ValueError('its own')\n"


def test_another_multiprocessing_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class BaseProcess:
        name = "no property"

    other = ModuleType("multiprocessing.process")
    other.BaseProcess = BaseProcess  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "multiprocessing.process", other)
    assert endings.see_children(lambda error, where: None).startswith("unavailable: ")
    assert BaseProcess.name == "no property"


def test_a_child_that_nobody_follows_leaves_its_parents_account_alone(tmp_path: Path) -> None:
    watched = Watched(Settings(tmp_path, tmp_path, None, False, 30.0, False), tmp_path)
    watched.write()
    before = (tmp_path / "result.json").stat().st_mtime_ns
    watched.stop()
    watched.caught(ValueError("of the child"), "thread")
    assert (tmp_path / "result.json").stat().st_mtime_ns == before
    assert watched.trial.errors == []
