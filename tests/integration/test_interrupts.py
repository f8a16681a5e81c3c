"""An interrupt at the moments in which it would hurt most, with tiny subjects."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_subjects import write_python

from harness.control.executors import LocalExecutor
from harness.control.request import Row, TrialRequest
from harness.core.scenario import Scenario


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    found = LocalExecutor(python=str(write_python(tmp_path / "python")), jobs=2)
    try:
        yield found
    finally:
        found.close()


def requests(base: Path) -> list[TrialRequest]:
    found = []
    for number in range(2):
        folder = base / "run" / "trials" / str(number)
        folder.mkdir(parents=True)
        found.append(TrialRequest(f"trial-{number}", Scenario(), 0, folder))
    return found


def test_between_two_ends_that_are_told_at_once(executor: LocalExecutor, tmp_path: Path) -> None:
    """As the row of the first is written, the end of the second has been read and not been heard."""
    receive = executor._server.receive
    rows: list[Row] = []

    def batched() -> list[dict[str, Any]]:
        messages = receive()
        while not rows and sum(message["ev"] == "ended" for message in messages) == 1:
            messages += receive()
        return messages

    executor._server.receive = batched  # type: ignore[method-assign]

    def on_row(row: Row) -> None:
        rows.append(row)
        if len(rows) == 1:
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        executor.run(requests(tmp_path), lambda request: None, on_row)
    assert [row["exit"]["how"] for row in rows] == ["exited", "exited"]
    assert sorted(row["trial"] for row in rows) == ["trial-0", "trial-1"]
    assert time.monotonic() - began < 10


def test_before_the_start_server_has_heard_of_a_trial(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise KeyboardInterrupt

    executor.wait_ready()
    rows: list[Row] = []
    began = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(executor._server, "start", start)
        with pytest.raises(KeyboardInterrupt):
            executor.run(requests(tmp_path), lambda request: None, rows.append)
    assert [row["outcome"] for row in rows] == ["interrupted"]
    assert time.monotonic() - began < 10
    executor.run(requests(tmp_path / "again"), lambda request: None, rows.append)
    assert len(rows) == 3, "it can be used as before"
