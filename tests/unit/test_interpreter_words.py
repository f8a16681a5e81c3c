"""The words of a Python command line: where the program begins, and what it is called."""

from __future__ import annotations

import pytest

from harness.core.interpreter_words import program_name, split

SPAWNED = ("-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)", "--multiprocessing-fork")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "python3"),
        (["-u", "app/train.py", "-c", "x"], "train.py"),
        (["-X", "dev", "-W", "error", "train.py"], "train.py"),
        (["-Xdev", "-OO", "train.py"], "train.py"),
        (["--check-hash-based-pycs", "never", "train.py"], "train.py"),
        (["-m", "torch.distributed.run", "train.py"], "torch.distributed.run"),
        (["-Bm", "pkg.train"], "pkg.train"),
        (["-mpkg.train"], "pkg.train"),
        (["-c", "pass"], "-c"),
        ([*SPAWNED], "-c"),
        (["-B", "-X", "dev", *SPAWNED], "-c"),
        (["-Bc", "pass"], "-c"),
        (["-"], "python3"),
        (["."], "python3"),
    ],
)
def test_a_process_is_called_by_its_program(words: list[str], name: str) -> None:
    assert program_name(["/usr/bin/python3", *words]) == name


def test_options_and_the_program_are_told_apart() -> None:
    assert split(["-Bu", "-X", "dev", "-I", "train.py", "-E"]) == ("BuI", ["train.py", "-E"])
    assert split(["-bcpass", "-E"]) == ("b", ["-c", "pass", "-E"])
