"""`lock = "process"`: each drafter a process, with the same losses as in one process, and compared like any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario

AXES: dict[str, Any] = {"drafters": 2, "steps": 2}


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    found = LocalExecutor(jobs=1)
    yield found
    found.close()


def run(executor: LocalExecutor, folder: Path, **axes: Any) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    folder.mkdir()
    executor.run([TrialRequest("t", Scenario(**axes), 0, folder)], lambda _: None, rows.append)
    return rows[0]


def test_drafters_in_processes_compute_what_they_compute_in_one(executor: LocalExecutor, tmp_path: Path) -> None:
    split = run(executor, tmp_path / "split", lock="process", **AXES)
    whole = run(executor, tmp_path / "whole", lock="every_step", **AXES)
    assert (split["outcomes"], split["errors"]) == (["ok"], [])
    assert (split["steps_ok"], split["steps_failed"]) == (4, 0)
    assert split["compiles"] == 2, "each process compiles for itself"
    assert split["startup_s"] > 0
    for name in ("drafter-0", "drafter-1"):
        assert split["workers"][name]["losses"] == pytest.approx(whole["workers"][name]["losses"], rel=1e-5)
        assert (tmp_path / "split" / name / "events.jsonl").exists()


@pytest.mark.parametrize(
    ("axes", "why"),
    [({"replicas": "synchronised"}, "averaging gradients"), ({"warmup": "main_grad"}, "does not serve")],
)
def test_what_cannot_cross_a_process_is_skipped_with_the_reason(
    executor: LocalExecutor, tmp_path: Path, axes: dict[str, str], why: str
) -> None:
    row = run(executor, tmp_path / "t", lock="process", **AXES, **axes)
    assert row["outcomes"] == ["skipped"]
    assert why in row["reason"]
