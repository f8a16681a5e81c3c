"""The event log: a line an event, read back in order, a cut last line left out."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import events
from harness.core.errors import RunFolderError
from harness.core.events import KINDS, event_line, read_events

FIRST = {"t": 0, "th": "MainThread", "id": 1, "w": "", "k": "subject.start"}
SECOND = {"t": 12, "th": "drafter-0", "id": 2, "w": "drafter-0", "k": "region.enter", "r": "größe\n日"}


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(data)
    return path


def test_events_come_back_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, (event_line(FIRST) + event_line(SECOND)).encode())
    assert list(read_events(path)) == [FIRST, SECOND]


def test_an_event_is_one_line_whatever_it_holds() -> None:
    line = event_line({**SECOND, "device": Path("cuda")})
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert json.loads(line)["device"] == "cuda"


@pytest.mark.parametrize("cut", range(1, len(event_line(SECOND).encode()) - 1))
def test_a_cut_last_line_is_left_out(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path, event_line(FIRST).encode() + event_line(SECOND).encode()[:cut])
    assert list(read_events(path)) == [FIRST]


def test_a_character_cut_in_two_is_left_out(tmp_path: Path) -> None:
    whole = json.dumps(SECOND, ensure_ascii=False).encode()
    path = write(tmp_path, event_line(FIRST).encode() + whole[: whole.index("日".encode()) + 1])
    assert list(read_events(path)) == [FIRST]


def test_a_last_line_without_its_break_counts_when_it_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path, (event_line(FIRST) + event_line(SECOND)).encode()[:-1])
    assert list(read_events(path)) == [FIRST, SECOND]


def test_an_empty_log_has_no_events(tmp_path: Path) -> None:
    assert list(read_events(write(tmp_path, b""))) == []


@pytest.mark.parametrize("damage", [b"{\n", b"7\n", b"\n", b"\xff\n"])
def test_a_damaged_line_in_the_middle_is_told_with_its_number(tmp_path: Path, damage: bytes) -> None:
    path = write(tmp_path, event_line(FIRST).encode() + damage + event_line(SECOND).encode())
    with pytest.raises(RunFolderError, match=r"events\.jsonl: line 2 "):
        list(read_events(path))


def test_a_missing_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"events\.jsonl: cannot read"):
        list(read_events(tmp_path / "events.jsonl"))


def test_kinds_are_different() -> None:
    assert len(set(KINDS)) == len(KINDS)


def test_every_kind_that_the_subject_writes_is_listed() -> None:
    """Kinds are literals at the calls of `emit`, but for those of locks, and of a hang."""
    root = Path(events.__file__).parents[1]
    calls = [
        node
        for path in (root / "subject").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "emit"
    ]
    written = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    written |= {"hang", "deadlock", "barrier.wait", "barrier.leave"}
    written |= {f"strategy_lock.{what}" for what in ("wait", "acquired", "released")}
    assert written == set(KINDS)


@given(st.lists(st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=9), st.none()))))
def test_any_events_survive(tmp_path_factory: pytest.TempPathFactory, written: list[dict[str, object]]) -> None:
    path = tmp_path_factory.mktemp("events") / "events.jsonl"
    path.write_text("".join(map(event_line, written)), encoding="utf-8")
    assert list(read_events(path)) == written
