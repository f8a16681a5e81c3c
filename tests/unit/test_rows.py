"""The row of a trial: the last events of its threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.control.rows import LAST_OF_THREAD, MOST_LAST_EVENTS, last_events
from harness.core.events import event_line


def event(at: int, ident: int, name: str = "t") -> dict[str, Any]:
    return {"t": at, "th": name, "id": ident, "w": "", "k": "step.done"}


def written(folder: Path, events: list[dict[str, Any]]) -> list[int]:
    """The times of what is kept."""
    (folder / "events.jsonl").write_text("".join(map(event_line, events)), "utf-8")
    return [found["t"] for found in last_events(folder)]


def test_a_thread_that_fell_silent_long_ago_keeps_its_last_events(tmp_path: Path) -> None:
    stuck = [event(at, 1) for at in range(8)]
    busy = [event(at, 2) for at in range(8, 500)]
    assert written(tmp_path, stuck + busy) == [3, 4, 5, 6, 7, 495, 496, 497, 498, 499]


def test_they_are_in_the_order_of_time(tmp_path: Path) -> None:
    assert written(tmp_path, [event(at, at % 3) for at in range(30)]) == list(range(15, 30))


def test_an_ident_that_was_given_again_is_another_thread(tmp_path: Path) -> None:
    found = written(tmp_path, [event(at, 1, "first") for at in range(9)] + [event(at, 1, "second") for at in range(9, 20)])
    assert found == [4, 5, 6, 7, 8, 15, 16, 17, 18, 19]


def test_many_threads_have_fewer_each(tmp_path: Path) -> None:
    count = MOST_LAST_EVENTS // 2
    found = written(tmp_path, [event(at, at % count) for at in range(count * LAST_OF_THREAD)])
    assert found == list(range(count * (LAST_OF_THREAD - 2), count * LAST_OF_THREAD))
    count = 3 * MOST_LAST_EVENTS
    assert written(tmp_path, [event(at, at) for at in range(count)]) == list(range(count - MOST_LAST_EVENTS, count))


def test_there_are_none_without_a_log(tmp_path: Path) -> None:
    assert last_events(tmp_path) == []
