"""A process that dies takes no error with it that was told before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.control.dump_source import read_source
from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        found = LocalExecutor(jobs=1)
        yield found
        found.close()


def run(executor: LocalExecutor, folder: Path, workload: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    request = TrialRequest("t", Scenario(workload=workload, drafters=2), 0, folder, timeout_s=60, hang_timeout_s=40)
    executor.run([request], lambda _: None, rows.append)
    return rows[0]


@pytest.mark.parametrize(
    ("name", "signal", "status"), [("Aborts", "SIGABRT", None), ("Exits", None, 134), ("Daemon", "SIGABRT", None)]
)
def test_the_error_comes_first_with_its_traceback_then_the_crash(
    executor: LocalExecutor, tmp_path: Path, name: str, signal: str | None, status: int | None
) -> None:
    row = run(executor, tmp_path, f"dying_workloads:{name}")
    assert (row["outcome"], row["outcomes"]) == ("error", ["error", "crash"])
    assert (row["exit"]["signal"], row["exit"]["status"]) == (signal, status)
    (error,) = row["errors"]
    assert (error["worker"], error["region"], error["step"], error["type"]) == ("drafter-0", "loss", 2, "ValueError")
    assert "in break_it" in error["traceback"]
    assert "planted: the step went wrong" in error["traceback"]
    assert (row["steps_ok"], row["steps_failed"]) == (2, 1), "of the drafters"
    workers = row["workers"]
    assert {who: (one["role"], one["steps_ok"]) for who, one in workers.items()} == {
        "target-0": ("target", 1),
        "drafter-0": ("drafter", 2),
        "drafter-1": ("drafter", 0),
    }
    assert workers["drafter-0"]["losses"] == [1.5, 1.25, None]
    assert "errors.jsonl" in row["evidence"]
    assert row["last_events"]
    raised = [one.type for one in read_source(str(tmp_path)).dump.exceptions]
    assert "ValueError" in raised, "harness explain finds it"


def test_a_trial_that_ends_with_its_account_keeps_no_second_one(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, tmp_path, "faulty_workloads:FailsInSetup")
    assert (row["outcomes"], len(row["errors"])) == (["setup_error"], 1)
    assert not (tmp_path / "errors.jsonl").exists()
    assert "errors.jsonl" not in row["evidence"]
