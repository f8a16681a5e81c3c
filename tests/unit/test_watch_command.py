"""Which program a watch is given, and what keeps an interpreter from being watched."""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path

import pytest

from harness.commands.watch import watch as watch_command
from harness.control import environment
from harness.control.watch import HANG_TIMEOUT_S, WatchOptions, _facts
from harness.control.watch_command import Command, read_command
from harness.control.watch_start import Start
from harness.core.errors import UserError

PLAIN = WatchOptions((), None, None, HANG_TIMEOUT_S, False, False)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")


def script(path: Path, first: str) -> str:
    path.write_text(f"{first}\n")
    path.chmod(0o755)
    return str(path)


def test_the_thread_that_asks_for_facts_of_the_machine_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(*_: object) -> dict[str, str]:
        return {"asked by": threading.current_thread().name}

    monkeypatch.setattr(environment, "describe_environment", describe)
    assert _facts(read_command(["train.py"]), PLAIN) == {"asked by": "harness-facts"}


def test_the_command_that_made_the_watch_has_all_options_but_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(_: object, command: list[str]) -> dict[str, list[str]]:
        return {"command": command}

    monkeypatch.setattr(environment, "describe_environment", describe)
    words = (sys.executable, "train.py", "--hf-token=abc")
    command = read_command(words)
    given = WatchOptions(words, Path("a b"), True, 5.5, True, True)
    options = ["--out", "a b", "--follow", "--hang-timeout", "5.5", "--on-hang", "kill", "--live"]
    after = ["--", *command.words[:2], "--hf-token=…"]
    assert _facts(command, given) == {"command": ["watch", *options, *after]}
    assert _facts(command, PLAIN) == {"command": ["watch", *after]}


def test_the_default_of_the_hang_timeout_is_the_one_that_is_not_told() -> None:
    assert inspect.signature(watch_command).parameters["hang_timeout"].default == HANG_TIMEOUT_S


@pytest.mark.parametrize(
    ("given", "rest"),
    [
        ([sys.executable, "train.py", "-E"], [sys.executable, "train.py", "-E"]),
        (["-m", "mod", "--x"], [sys.executable, "-m", "mod", "--x"]),
        (["train.py", "1"], [sys.executable, "train.py", "1"]),
        ([sys.executable, "-uW", "error", "-Xdev", "train.py"], [sys.executable, "-uW", "error", "-Xdev", "train.py"]),
        ([sys.executable, "-c", "import sys", "-I"], [sys.executable, "-c", "import sys", "-I"]),
        ([sys.executable, "-X", "-I", "train.py"], [sys.executable, "-X", "-I", "train.py"]),
    ],
)
def test_words_are_passed_on(given: list[str], rest: list[str]) -> None:
    assert list(read_command(given).words) == rest


@pytest.mark.parametrize(
    "given",
    [
        [sys.executable, "-I", "train.py"],
        [sys.executable, "-uE", "train.py"],
        [sys.executable, "-S", "-m", "mod"],
        [sys.executable, "-W", "error", "-I", "train.py"],
        [sys.executable, "-Ic", "pass"],
    ],
)
def test_an_interpreter_that_cannot_be_watched_is_refused(given: list[str]) -> None:
    with pytest.raises(UserError, match=r"cannot be watched: -[IES] .*; run it without"):
        read_command(given)


@pytest.mark.parametrize(
    ("first", "refused"),
    [
        (f"#!{sys.executable}", False),
        (f"#!{sys.executable} -I", True),
        ("#!/usr/bin/env python3", False),
        ("#!/usr/bin/env -S python3 -sE", True),
        ("#!/bin/sh -E", False),
        ("", False),
    ],
)
def test_the_first_line_of_a_script_counts(tmp_path: Path, first: str, refused: bool) -> None:
    tool = script(tmp_path / "tool", first)
    if refused:
        with pytest.raises(UserError, match="cannot be watched"):
            read_command([tool])
    else:
        assert read_command([tool]).words == (tool,)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no command to watch"),
        (["nosuch"], "nosuch: no such command"),
        (["."], r"\. is a folder"),
        (["./notes.txt"], "is not executable"),
    ],
)
def test_no_command(tmp_path: Path, given: list[str], said: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match=said):
        read_command(given)


@pytest.mark.parametrize("options", [[], ["-u"], ["-uB", "-OO"]])
def test_a_script_that_is_not_there_is_refused(options: list[str]) -> None:
    with pytest.raises(UserError, match=r'^trian\.py: no such file \(did you mean "train\.py"\?\); '):
        read_command([sys.executable, *options, "trian.py", "--lr", "1"])
    with pytest.raises(UserError, match=r"^nosuch/folder\.py: no such file; "):
        read_command([sys.executable, *options, "nosuch/folder.py"])


@pytest.mark.parametrize(
    "words",
    [
        ["-i", "trian.py"],
        ["-V", "trian.py"],
        ["-W", "error", "trian.py"],
        ["-Xdev", "trian.py"],
        ["--check-hash-based-pycs", "never", "trian.py"],
        ["-c", "pass", "trian.py"],
        ["-m", "trian"],
        ["-", "trian.py"],
        ["."],
        ["train.py/trian.py"],  # another error, which the interpreter tells in its own words
        ["-u"],
        [],
    ],
)
def test_what_is_not_certain_to_be_a_missing_script_runs(words: list[str]) -> None:
    assert read_command([sys.executable, *words]).words == (sys.executable, *words)


def test_a_wrapper_called_python_or_a_prompt_afterwards_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = script(tmp_path / "python", "#!/bin/sh")
    assert read_command([wrapper, "trian.py"])
    monkeypatch.setenv("PYTHONINSPECT", "1")
    assert read_command([sys.executable, "trian.py"])


def test_a_module_of_the_programs_own_called_harness_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "harness.py").write_text("")
    for given in ([sys.executable, "train.py"], ["-m", "mod"]):
        with pytest.raises(UserError, match=r"harness\.py: the program has a module of its own"):
            read_command(given)
    assert read_command([sys.executable, "-c", "pass"])


@pytest.mark.parametrize(
    ("given", "launcher"),
    [(["-m", "torch.distributed.run", "x.py"], True), (["-m", "mod"], False), ([sys.executable, "train.py"], False)],
)
def test_a_launchers_children_do_the_work(given: list[str], launcher: bool) -> None:
    assert read_command(given).launcher is launcher


def test_secrets_are_not_shown() -> None:
    command = Command(("python", "t.py", "--hf-token=abc", "--api-key", "def", "--tokenizer", "x", "--password"), False, "t")
    assert command.shown() == ["python", "t.py", "--hf-token=…", "--api-key", "…", "--tokenizer", "x", "--password"]


@pytest.mark.parametrize("path", [None, "", "a:b"])
def test_the_start_comes_first_on_the_path_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    if path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", path)
    start = Start(tmp_path, follow=False, hang_timeout_s=1.0, live=False)
    try:
        # An empty part would put the working folder on the path.
        assert start.environment()["PYTHONPATH"].split(":") == [str(start.folder), *(["a", "b"] if path == "a:b" else [])]
        assert start.notes() == ""
    finally:
        start.remove()
    assert not start.folder.exists()
