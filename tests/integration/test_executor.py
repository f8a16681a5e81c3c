"""Every way a subject can end gives an outcome with its evidence, and the run goes on."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.control.evidence import pyspy
from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(HERE)
    found = LocalExecutor(jobs=2)
    try:
        yield found
    finally:
        found.close()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def request_for(folder: Path, name: str, **options: Any) -> TrialRequest:
    axes = options.pop("axes", {})
    own = folder / name
    own.mkdir()
    defaults: dict[str, Any] = {"timeout_s": 60.0, "hang_timeout_s": 30.0}
    workload = name if name == "nothing" else f"faulty_workloads:{name}"
    return TrialRequest(name, Scenario(workload=workload, **axes), 0, own, **{**defaults, **options})


def run(executor: LocalExecutor, *requests: TrialRequest) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    started: list[str] = []

    def keep(row: dict[str, Any]) -> None:
        rows[row["trial"]] = row

    executor.run(requests, lambda request: started.append(request.trial_id), keep)
    assert started == [request.trial_id for request in requests]
    assert set(rows) == set(started)
    return rows


def test_a_trial_that_is_no_longer_needed_does_not_start(executor: LocalExecutor, tmp_path: Path) -> None:
    """It is asked when its turn comes: of four with two jobs the third, as one has ended by then."""
    names = ["a", "b", "c", "d"]
    asked_for_c = tmp_path / "asked"
    requests = []
    for name in names:
        (tmp_path / name).mkdir()
        workload = "faulty_workloads:WaitsForAFile" if name == "b" else "nothing"
        settings = {"file": str(asked_for_c)} if name == "b" else {}
        scenario = Scenario(workload=workload)
        requests.append(TrialRequest(name, scenario, 0, tmp_path / name, pipeline=settings, timeout_s=60.0))
    asked: list[tuple[str, int]] = []
    rows: list[str] = []

    def on_start(request: TrialRequest) -> bool:
        asked.append((request.trial_id, len(rows)))
        if request.trial_id == "c":
            asked_for_c.touch()  # the second ends no earlier
        return not rows

    executor.run(requests, on_start, lambda row: rows.append(row["trial"]))
    assert asked[:2] == [("a", 0), ("b", 0)], "two at the same time"
    assert [name for name, _ in asked] == names
    assert asked[2] == ("c", 1)
    assert sorted(rows) == ["a", "b"]
    assert not list((tmp_path / "c").iterdir())


def test_a_good_trial_is_ok_and_leaves_its_files(executor: LocalExecutor, tmp_path: Path) -> None:
    request = request_for(tmp_path, "nothing", axes={"steps": 3, "drafters": 2})
    row = run(executor, request)["nothing"]
    assert (row["outcome"], row["steps_ok"], row["steps_expected"]) == ("ok", 6, 6)
    assert row["exit"] == {"status": 0, "signal": None, "how": "exited"}
    assert row["start_s"] is not None
    assert row["startup_s"] > 0
    events = [json.loads(line) for line in (request.folder / "events.jsonl").read_text().splitlines()]
    assert [e["t"] for e in events] == sorted(e["t"] for e in events)
    assert sum(e["k"] == "step.done" for e in events) == 6
    assert not (request.folder / "events.bin").exists()
    assert not (request.folder / "cache").exists()


@pytest.mark.parametrize(
    ("name", "signal_name", "status"),
    [("Segfault", "SIGSEGV", None), ("Abort", "SIGABRT", None), ("Killed", "SIGKILL", None), ("Exits", None, 7)],
)
def test_a_death_is_a_crash_with_its_last_events(
    executor: LocalExecutor, tmp_path: Path, name: str, signal_name: str | None, status: int | None
) -> None:
    rows = run(executor, request_for(tmp_path, name), request_for(tmp_path, "nothing"))
    row = rows[name]
    assert row["outcome"] == "crash"
    assert (row["exit"]["signal"], row["exit"]["status"]) == (signal_name, status)
    assert row["last_events"][-1]["w"] == "drafter-0"
    assert rows["nothing"]["outcome"] == "ok"
    if name in ("Segfault", "Abort"):
        assert row["last_events"][-1]["k"] == "step.done", "the event before the death is on disk"
        stacks = (tmp_path / name / "stacks.txt").read_text()
        assert "faulty_workloads.py" in stacks, "faulthandler's stack of the dying thread"
    if name == "Killed":
        assert "not sent by the harness" in row["reason"]


def test_a_process_that_the_kernel_killed_for_memory_is_out_of_it(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = iter((3, 4, 4, 4))  # before and after the first, and the second
    monkeypatch.setattr("harness.control.executors.killed_for_memory", lambda: next(counted))
    (tmp_path / "again").mkdir()
    first = run(executor, request_for(tmp_path, "Killed"))["Killed"]
    second = run(executor, request_for(tmp_path / "again", "Killed"))["Killed"]
    assert (first["outcomes"], first["exit"]["signal"]) == (["out_of_memory"], "SIGKILL")
    assert "lack of host memory" in first["reason"]
    assert second["outcomes"] == ["crash"]


def test_a_setup_that_raises_is_no_fault_of_the_subject(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "FailsInSetup"))["FailsInSetup"]
    assert row["outcomes"] == ["setup_error"]
    assert "no such model: planted" in row["reason"]
    assert "FailsInSetup" in row["errors"][0]["traceback"] or "setup" in row["errors"][0]["traceback"]


def test_a_workload_without_workers_is_no_fault_of_the_subject(executor: LocalExecutor, tmp_path: Path) -> None:
    rows = run(executor, request_for(tmp_path, "NoWorkers"), request_for(tmp_path, "FailsInWorkers"))
    for name, text in (("NoWorkers", "gave None, which is no Worker"), ("FailsInWorkers", "no workers today")):
        assert rows[name]["outcomes"] == ["setup_error"]
        assert text in rows[name]["reason"]
        assert "workers" in rows[name]["errors"][0]["traceback"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("EmptyWorkers", "gave no Worker; it has to give one at least"),
        ("SameName", "gave two Workers of the name 'twin'"),
        ("NoName", "whose name is ''"),
        ("TakesNoStep", "no worker took a step: a workload tells of each with ctx.step("),
        ("LeavesInSetup", "SystemExit: 0, raised during the set-up"),
        ("InterruptsInSetup", "KeyboardInterrupt, raised during the set-up"),
        ("ExitsInSetup", "the process ended with 0 during the set-up; its output ends: planted: cannot go on"),
        ("SegfaultInSetup", "the process ended by SIGSEGV during the set-up"),
    ],
)
def test_a_trial_in_which_nothing_ran_shows_nothing(
    executor: LocalExecutor, tmp_path: Path, name: str, text: str
) -> None:
    row = run(executor, request_for(tmp_path, name))[name]
    assert row["outcomes"] == ["setup_error"]
    assert text in row["reason"]


def test_a_setup_that_never_ends_is_no_hang_of_the_subject(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "NeverSetUp", timeout_s=2.0))["NeverSetUp"]
    assert row["outcomes"] == ["setup_error"]
    assert row["reason"].startswith("no end within the time limit (2 s), during the set-up; ")
    assert "its output ends: planted: waiting for a port" in row["reason"]


def test_an_exit_says_the_last_line_of_the_output(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "ExitsWithWords"))["ExitsWithWords"]
    assert row["outcomes"] == ["crash"]
    assert row["reason"] == "the process ended with 7; its output ends: planted: the last words"


@pytest.mark.parametrize(("name", "kind"), [("LeavesTheWorker", "SystemExit"), ("InterruptsTheWorker", "KeyboardInterrupt")])
def test_a_worker_that_leaves_is_an_error_and_the_others_are_stopped(
    executor: LocalExecutor, tmp_path: Path, name: str, kind: str
) -> None:
    row = run(executor, request_for(tmp_path, name))[name]
    assert row["outcomes"] == ["error"]
    (error,) = row["errors"]
    assert (error["type"], error["worker"], error["region"]) == (kind, "drafter-0", "step")
    assert row["workers"]["drafter-1"]["steps_ok"] == 1, "stop() was called"


def test_a_stop_that_raises_is_a_problem_beside_the_error(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "StopRaises"))["StopRaises"]
    assert row["outcomes"] == ["error"]
    assert [error["type"] for error in row["errors"]] == ["ValueError"]
    told = "stop() of the workload, called since drafter-0 had ended early, raised RuntimeError: planted: cannot stop"
    assert row["problems"] == [{"label": "error", "text": told}]
    assert "Traceback" in (tmp_path / "StopRaises" / "stdout.txt").read_text()


def test_a_check_that_leaves_is_an_error(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "CheckLeaves"))["CheckLeaves"]
    assert row["outcomes"] == ["error"]
    assert (row["errors"][0]["type"], row["errors"][0]["message"]) == ("SystemExit", "planted: from the check")


@pytest.mark.parametrize("name", ["OutOfMemory", "OutOfHostMemory", "OutOfMemoryInSetup"])
def test_out_of_memory_is_no_failure_and_says_its_peak(executor: LocalExecutor, tmp_path: Path, name: str) -> None:
    row = run(executor, request_for(tmp_path, name))[name]
    assert row["outcomes"] == ["out_of_memory"]
    assert [error["label"] for error in row["errors"]] == ["out_of_memory"]
    assert re.match(r"peak \d+\.\d GiB of the machine's memory in this process; .* no fault of a lock", row["reason"])
    assert ("Tried to allocate 2.00 GiB" in row["reason"]) == (name == "OutOfMemoryInSetup")


def test_an_import_that_fails_is_a_setup_error(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "FailsToImport"))["FailsToImport"]
    assert row["outcomes"] == ["setup_error"]
    assert "a_module_that_is_not_there" in row["reason"]


def test_an_unknown_workload_names_the_remedy(executor: LocalExecutor, tmp_path: Path) -> None:
    own = tmp_path / "x"
    own.mkdir()
    row = run(executor, TrialRequest("x", Scenario(workload="dflahs"), 0, own))["x"]
    assert row["outcomes"] == ["setup_error"]
    assert 'did you mean "dflash"' in row["reason"]


def test_a_worker_that_raises_keeps_its_whole_traceback(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "Raises"))["Raises"]
    assert row["outcomes"] == ["error"]
    (error,) = row["errors"]
    assert (error["type"], error["worker"], error["thread"]) == ("ValueError", "drafter-0", "drafter-0")
    assert "planted: worker 17" in error["traceback"]
    assert "in run" in error["traceback"]


def test_a_failed_step_says_where_and_counts(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "StepFails"))["StepFails"]
    assert (row["steps_ok"], row["steps_failed"]) == (1, 1)
    assert row["errors"][0]["region"] == "forward"
    assert row["workers"]["drafter-0"]["losses"] == [None, 2.0]


def test_a_hang_is_told_from_inside_with_stacks(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "Hangs", hang_timeout_s=1.0))["Hangs"]
    assert row["outcomes"] == ["hang"]
    assert row["exit"]["signal"] == "SIGKILL"
    stacks = (tmp_path / "Hangs" / "stacks.txt").read_text()
    assert "faulty_workloads.py" in stacks
    assert "py-spy" in stacks
    assert row["last_events"]


def test_a_subject_that_holds_the_interpreter_lock_is_ended_from_outside(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.control.executors.SILENCE_S", 1.0)
    name = "HoldsTheInterpreterLock"
    row = run(executor, request_for(tmp_path, name, hang_timeout_s=2.0))[name]
    assert row["outcomes"] == ["hang"]
    assert row["exit"]["how"] == "hang"
    assert "faulty_workloads.py" in (tmp_path / name / "stacks.txt").read_text()


def test_the_time_limit_ends_a_trial(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "Hangs", timeout_s=2.0))["Hangs"]
    assert row["outcomes"] == ["hang"]
    assert row["exit"]["how"] == "timeout"
    assert row["reason"].startswith("no end within the time limit (2 s)"), "the limit, not how long it took"
    assert "faulty_workloads.py" in (tmp_path / "Hangs" / "stacks.txt").read_text()


@pytest.mark.skipif(pyspy() is None, reason="py-spy reads the stacks from outside")
def test_a_cycle_of_locks_is_a_deadlock_also_at_the_time_limit(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "OwnLockCycle", timeout_s=3.0, hang_timeout_s=60.0))["OwnLockCycle"]
    assert row["outcomes"] == ["deadlock"], row["reason"]
    assert row["exit"]["how"] == "timeout"
    assert row["reason"].startswith("no end within the time limit (3 s); ")


def test_a_deadlock_names_its_cycle(executor: LocalExecutor, tmp_path: Path) -> None:
    axes = {"lock": "every_step", "lock_owner": "thread"}
    row = run(executor, request_for(tmp_path, "LockCycle", axes=axes, hang_timeout_s=10.0))["LockCycle"]
    assert row["outcomes"][0] in ("deadlock", "hang")
    assert "drafter-1" in row["reason"]
    assert "held by drafter-0" in row["reason"]


def test_output_is_capped(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "Chatters"))["Chatters"]
    assert row["outcome"] == "ok"
    out = (tmp_path / "Chatters" / "stdout.txt").read_bytes()
    assert len(out) < (1 << 20) + 200
    assert out.endswith(b"further bytes were not kept]\n")


def test_what_a_subject_leaves_behind_is_killed(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, request_for(tmp_path, "LeavesAChild"))["LeavesAChild"]
    child = row["workers"]["drafter-0"]["facts"]["child"]
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _alive(child):
        time.sleep(0.02)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_interpreter_without_torch_gives_every_trial_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    (broken / "torch").mkdir(parents=True)
    (broken / "torch" / "__init__.py").write_text("raise ImportError('planted: no torch here')\n")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    executor = LocalExecutor()
    try:
        rows = run_rows(executor, [request_for(tmp_path, "nothing"), request_for(tmp_path, "Raises")])
    finally:
        executor.close()
    assert [row["outcome"] for row in rows] == ["setup_error", "setup_error"]
    assert all("planted: no torch here" in row["reason"] for row in rows)
    assert "planted" in (tmp_path / "nothing" / "stdout.txt").read_text()


def run_rows(executor: LocalExecutor, requests: list[TrialRequest]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    executor.run(requests, lambda _: None, rows.append)
    return rows


def test_a_closed_executor_leaves_no_process(tmp_path: Path) -> None:
    executor = LocalExecutor()
    executor.wait_ready()
    server = executor._server._process
    executor.close()
    assert server.returncode is not None
