"""The order of trials, what is run again, and what an interrupt leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_runs import FakeExecutor, make_row, matrix

from harness.control import results, rundir
from harness.control.request import Row, TrialRequest
from harness.control.rundir import RunFolder
from harness.control.runner import Plan, carry_out, make_plan
from harness.core.scenario import Scenario
from harness.report.progress import Progress


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with rundir.open_run(tmp_path / "run", resume=False) as opened:
        opened.open_results(lambda note: None)
        yield opened


def plan(folder: RunFolder, repeats: int = 2, **rest: object) -> Plan:
    loaded = matrix()
    return make_plan(loaded, loaded.scenarios, folder, repeats=repeats, **rest)  # type: ignore[arg-type]


def test_repeats_are_interleaved_over_scenarios(folder: RunFolder) -> None:
    ids = [scenario.id for scenario in matrix().scenarios]
    assert [request.trial_id for request in plan(folder).requests] == [
        f"{name}--r{repeat}" for repeat in (0, 1) for name in ids
    ]


def test_limits_of_the_matrix_hold_unless_said_otherwise(folder: RunFolder) -> None:
    text = 'schema = 1\n[defaults]\ntimeout = 7\nhang_timeout = 3\n[axes]\nlock = ["none"]\n'
    loaded = matrix(text)
    (request,) = make_plan(loaded, loaded.scenarios, folder, repeats=1).requests
    assert (request.timeout_s, request.hang_timeout_s) == (7, 3)
    (request,) = make_plan(loaded, loaded.scenarios, folder, repeats=1, timeout_s=2).requests
    assert (request.timeout_s, request.hang_timeout_s) == (2, 3)
    (request,) = make_plan(matrix(), matrix().scenarios[:1], folder, repeats=1).requests
    assert request.timeout_s == TrialRequest("t", Scenario(), 0, Path()).timeout_s


def test_all_rows_reach_the_disk(folder: RunFolder) -> None:
    executor = FakeExecutor()
    assert not carry_out(plan(folder), folder, executor, Progress())
    assert [found["trial"] for found in results.read_rows(folder.path)] == executor.ran
    assert len(executor.ran) == 8


def test_a_skipped_scenario_has_one_row_and_is_not_run(folder: RunFolder) -> None:
    made = plan(folder, skip=lambda scenario: "no" if scenario.lock == "none" else "")
    executor = FakeExecutor()
    carry_out(made, folder, executor, Progress())
    rows = [found for found in results.read_rows(folder.path) if found["outcome"] == "skipped"]
    assert [(found["repeat"], found["reason"]) for found in rows] == [(0, "no"), (0, "no")]
    assert all("lock=first_step" in name for name in executor.ran)


def test_finished_trials_are_not_run_again(folder: RunFolder) -> None:
    first = FakeExecutor(before=interrupt_at(3))
    assert carry_out(plan(folder), folder, first, Progress())
    again = plan(folder)
    assert again.already == 3
    second = FakeExecutor()
    assert not carry_out(again, folder, second, Progress())
    assert sorted(first.ran + second.ran) == sorted(request.trial_id for request in plan_of_all(folder))
    assert not set(first.ran) & set(second.ran)


def plan_of_all(folder: RunFolder) -> tuple[TrialRequest, ...]:
    folder.finished = set()
    return plan(folder).requests


def interrupt_at(moment: int):  # type: ignore[no-untyped-def]
    def before(number: int) -> None:
        if number == moment:
            raise KeyboardInterrupt

    return before


def test_an_interrupted_trial_has_a_row_that_says_so(folder: RunFolder) -> None:
    assert carry_out(plan(folder), folder, FakeExecutor(before=interrupt_at(1)), Progress())
    assert [found["outcome"] for found in results.read_rows(folder.path)] == ["ok", "interrupted"]


def test_a_trial_whose_row_was_lost_by_a_kill_is_not_run_twice(folder: RunFolder) -> None:
    """The subject had written its result, and the run died before it could write the row."""
    made = plan(folder, repeats=1)
    request = made.requests[1]
    folder.fresh_trial_folder(request.trial_id)
    request.write_spec()
    result = {"outcomes": ["fx_error"], "reason": "", "fx_errors": 4, "errors": []}
    (request.folder / "result.json").write_text(json.dumps(result))
    executor = FakeExecutor()
    carry_out(made, folder, executor, Progress())
    assert request.trial_id not in executor.ran
    assert len(executor.ran) == 3
    found = next(found for found in results.read_rows(folder.path) if found["trial"] == request.trial_id)
    assert (found["outcome"], found["fx_errors"]) == ("fx_error", 4)


def test_a_half_written_trial_is_run_from_scratch(folder: RunFolder) -> None:
    """FakeExecutor holds that the folder it is given is empty."""
    made = plan(folder, repeats=1)
    folder.fresh_trial_folder(made.requests[0].trial_id)
    made.requests[0].write_spec()
    (made.requests[0].folder / "events.jsonl").write_text("{}\n")
    executor = FakeExecutor()
    carry_out(made, folder, executor, Progress())
    assert len(executor.ran) == 4


def test_a_result_of_another_scenario_is_not_taken_for_this_one(folder: RunFolder) -> None:
    made = plan(folder, repeats=1)
    request = made.requests[0]
    folder.fresh_trial_folder(request.trial_id)
    request.write_spec()
    spec = json.loads((request.folder / "spec.json").read_text())
    spec["scenario"]["steps"] += 1
    (request.folder / "spec.json").write_text(json.dumps(spec))
    (request.folder / "result.json").write_text('{"outcomes": ["ok"]}')
    executor = FakeExecutor()
    carry_out(made, folder, executor, Progress())
    assert request.trial_id in executor.ran


def test_a_listener_hears_of_a_row_only_when_it_is_on_disk(folder: RunFolder) -> None:
    heard: list[str] = []

    class Listening(Progress):
        def ended(self, row: Row) -> None:  # type: ignore[override]
            assert row["trial"] in [found["trial"] for found in results.read_rows(folder.path)]
            heard.append(row["trial"])

    carry_out(plan(folder, repeats=1), folder, FakeExecutor(), Listening())
    assert len(heard) == 4


def test_an_interrupt_has_to_wait_while_a_row_is_written(folder: RunFolder) -> None:
    held: list[bool] = []

    @contextmanager
    def hold() -> Iterator[None]:
        held.append(True)
        yield
        held.pop()

    class Listening(Progress):
        def ended(self, row: Row) -> None:  # type: ignore[override]
            assert held, "the row that has just been written is heard of inside the same hold"

    carry_out(plan(folder, repeats=1), folder, FakeExecutor(), Listening(), held=hold)
    assert not held


def test_a_fault_of_the_executor_is_not_swallowed(folder: RunFolder) -> None:
    def fail(request: TrialRequest) -> Row:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        carry_out(plan(folder), folder, FakeExecutor(outcome=fail), Progress())


def test_memory_does_not_grow_with_rows(folder: RunFolder) -> None:
    """400 rows of 100 kB leave less than four of them behind; a path in a plan keeps its text once it was asked for it."""
    import tracemalloc

    def heavy(request: TrialRequest) -> Row:
        return make_row(request, stuff="x" * 100_000)

    made = plan(folder, repeats=100)
    tracemalloc.start()
    carry_out(made, folder, FakeExecutor(outcome=heavy), Progress())
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 400_000
