"""py-spy's account of another process, and what its complaints mean. py-spy itself is a function here."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.control import process_stacks
from harness.control.process_record import edges_of_events
from harness.control.process_stacks import NoStacks, Remote, reason, take
from harness.core.stuck.source import Sources
from harness.core.stuck.waits import Constant


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_stacks, "BETWEEN_LOOKS_S", 0.0)
    monkeypatch.setattr(process_stacks, "pyspy", lambda: "py-spy")


def raw(name: str, ident: int, *frames: tuple[str, int], gil: bool = False, module: str | None = None) -> dict[str, Any]:
    return {
        "thread_id": ident,
        "thread_name": name,
        "os_thread_id": 0,
        "owns_gil": gil,
        "frames": [
            {"name": function, "filename": "/app/a.py", "module": module, "line": line, "locals": []}
            for function, line in frames
        ],
    }


class PySpy:
    """Answers in turn; an int is an exit status with a complaint."""

    def __init__(self, *answers: list[dict[str, Any]] | str) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    def __call__(self, command: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
        self.asked.append(list(command))
        answer = self.answers.pop(0)
        return (1, "", answer) if isinstance(answer, str) else (0, json.dumps(answer), "")


def test_a_stack_that_is_the_same_in_two_looks_stands_still() -> None:
    looks = PySpy([raw("a", 1, ("f", 3)), raw("b", 2, ("g", 4))], [raw("a", 1, ("f", 3)), raw("b", 2, ("g", 5))])
    found = take(0, native=False, timeout_s=1.0, run=looks)
    assert {thread.name: thread.still for thread in found.threads} == {"a": True, "b": False}


def test_native_frames_are_kept_apart_and_their_absence_is_told() -> None:
    one = [raw("a", 1, ("f", 3))]
    mixed = [raw("a", 1, ("f", 3))]
    mixed[0]["frames"].insert(0, {"name": "nanosleep", "filename": "libc", "module": "libc.so.6", "line": 0, "locals": None})
    found = take(0, native=True, timeout_s=1.0, run=PySpy(one, one, mixed))
    assert found.threads[0].native == ("nanosleep",)
    assert [frame.function for frame in found.threads[0].frames] == ["f"]
    refused = take(0, native=True, timeout_s=1.0, run=PySpy(one, one, "Operation not permitted (os error 1)"))
    assert "no native frames: not permitted" in refused.note
    assert refused.threads[0].native == ()


def test_a_stopped_process_is_not_paused() -> None:
    spy = PySpy([raw("a", 1)], [raw("a", 1)])
    take(0, native=True, timeout_s=1.0, stopped=True, run=spy)
    assert all("--nonblocking" in command for command in spy.asked)
    assert len(spy.asked) == 2, "native frames need a pause"


def test_threads_of_one_name_are_told_apart() -> None:
    same = [raw("worker", 1), raw("worker", 2)]
    found = take(0, native=False, timeout_s=1.0, run=PySpy(same, same))
    assert [thread.name for thread in found.threads] == ["worker (1)", "worker (2)"]


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("Error: Permission denied (os error 13)", "not permitted"),
        ("Error: Operation not permitted (os error 1)", "--cap-add SYS_PTRACE"),
        ("Error: No such process (os error 3)", "the process has gone"),
        ("Error: Failed to find python version from target process\n\nStack backtrace:\n", "no Python process"),
        ("no answer within 3 s", "no answer within 3 s"),
        ("Error: something else\nmore", "something else"),
        ("", "py-spy said nothing"),
    ],
)
def test_a_complaint_is_one_line_that_says_what_to_do(said: str, means: str) -> None:
    assert means in reason(said)
    assert "\n" not in reason(said)
    with pytest.raises(NoStacks, match=means.split(" (")[0]):
        take(0, native=False, timeout_s=1.0, run=PySpy(said))


@pytest.mark.parametrize(("state", "means"), [("S", "no Python process"), ("", "has gone"), ("Z", "has gone")])
def test_who_is_there_has_not_gone(monkeypatch: pytest.MonkeyPatch, state: str, means: str) -> None:
    """py-spy finds no file that a thread of the kernel executes, and says that of a process that has ended, too."""
    monkeypatch.setattr(process_stacks, "state_of", lambda pid: state)
    with pytest.raises(NoStacks, match=means):
        take(2, native=False, timeout_s=1.0, run=PySpy("Error: No such file or directory (os error 2)"))


def test_pyspy_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_stacks, "pyspy", lambda: None)
    with pytest.raises(NoStacks, match="pip install py-spy"):
        take(0, native=False, timeout_s=1.0, run=PySpy())


def test_names_lead_to_addresses_imports_and_paths() -> None:
    text = "from shared import table\nimport pool\n"
    sources = Sources({"/app/a.py": text}.get)
    one = raw("a", 1, ("f", 3))
    one["frames"][0]["locals"] = [
        {"name": "lock", "addr": 4096, "repr": "<_thread.lock at 0x1000>"},
        {"name": "i", "addr": 8192, "repr": "2"},
        {"name": "cell", "addr": 1, "repr": "<cell at 0x1>"},
    ]
    look = process_stacks.view(one, sources).frames[0].names
    keys = {name: value.key for name in ("lock", "table", "cell", "other") if (value := look(name)) is not None}
    assert keys == {
        "lock": 4096,
        "table": ("global", "shared", "table"),
        "cell": ("global", "a", "cell"),
        "other": ("global", "a", "other"),
    }
    pool = look("pool")
    assert pool is not None
    assert pool.attribute("lock").key == ("global", "pool", "lock")  # type: ignore[union-attr]
    index = look("i")
    assert index is not None
    assert look("locks").item(index).key == look("locks").item(Constant(2)).key  # type: ignore[union-attr]
    assert look("lock").kind == "_thread.lock"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("printed", "kind"), [("None", "NoneType"), ('"x"', "str"), ("12", "int"), ("-0.5", "float"), ("<Q at 0x1>", "Q"), ("", "")]
)
def test_the_kind_of_what_was_printed(printed: str, kind: str) -> None:
    assert Remote(1, printed).kind == kind


def event(ident: int, kind: str, lock: str = "") -> dict[str, Any]:
    return {"t": 0, "th": f"t{ident}", "id": ident, "w": "", "k": kind, "lock": lock}


def test_events_tell_who_waits_and_who_holds() -> None:
    told = [
        event(1, "strategy_lock.acquired", "step"),
        event(2, "compile_lock.acquired"),
        event(1, "compile_lock.wait"),
        event(2, "strategy_lock.wait", "step"),
        event(3, "compile_lock.wait"),
        event(3, "step.done"),
    ]
    assert edges_of_events(told) == [(1, "torch's compile lock", 2), (2, "the step lock", 1)]
    assert edges_of_events([*told, event(2, "compile_lock.released")]) == []


def test_a_thread_without_a_name_of_python_s_has_that_of_the_library_that_began_it() -> None:
    told: list[str] = []

    def renamed() -> None:
        own = threading.get_native_id()
        Path(f"/proc/self/task/{own}/comm").write_text("pt_autograd_0")
        told.append(process_stacks.native_name(os.getpid(), own))

    thread = threading.Thread(target=renamed)
    thread.start()
    thread.join(30)
    assert told == ["pt_autograd_0"]
    assert process_stacks.native_name(os.getpid(), os.getpid()) == "", "the program's own name tells no thread apart"
    assert process_stacks.native_name(os.getpid(), 2**22 + 1) == "", "no such thread"
    nameless = {**raw("", 7, ("wait", 3)), "thread_name": None}
    assert process_stacks.view(nameless, Sources(lambda _: None), None, "pt_autograd_0").name == "pt_autograd_0"
    assert process_stacks.view(nameless, Sources(lambda _: None)).name == "thread 7"
