"""The account of a trial: windows, outcomes, consequences."""

from __future__ import annotations

import json

import pytest

from harness.core.scenario import Scenario
from harness.subject.identity import Threads
from harness.subject.record import Trial
from harness.subject.result import build, outcomes

S = 1_000_000_000


def trial_with(**steps: list[tuple[float, int]]) -> Trial:
    trial = Trial()
    for worker, ends in steps.items():
        tally = trial.tally(worker, "drafter")
        tally.steps = [(int(at * S), tokens) for at, tokens in ends]
        tally.first_good_ns = tally.steps[0][0] if ends else None
    return trial


def test_startup_is_the_last_drafters_first_good_step_and_throughput_counts_from_there() -> None:
    trial = trial_with(a=[(1, 10), (3, 10), (4, 10), (9, 10)], b=[(2, 7), (3, 7), (5, 7), (6, 7)])
    # all warm from 2 s; b ends first, at 6 s: a's steps at 3 and 4, b's at 3, 5 and 6
    assert trial.window() == (2.0, (2 * 10 + 3 * 7) / 4.0)


@pytest.mark.parametrize("steps", [{"a": [(1, 1)], "b": []}, {}])
def test_a_drafter_without_a_good_step_has_no_startup(steps: dict[str, list[tuple[float, int]]]) -> None:
    assert trial_with(**steps).window() == (None, None)


def test_a_window_without_a_step_has_no_throughput() -> None:
    assert trial_with(a=[(1, 10), (2, 10)], b=[(3, 7), (4, 7)]).window() == (3.0, None)


def fail(trial: Trial, message: str, at: int, consequence: bool = False) -> None:
    error = RuntimeError(message)
    if consequence:
        error.consequence = True  # type: ignore[attr-defined]
    trial.error(error, Threads().current(), "drafter-0", at)


def test_the_earliest_cause_is_primary_and_consequences_are_left_out() -> None:
    trial = Trial()
    fail(trial, "the queue was aborted", 1, consequence=True)
    fail(trial, "Detected that you are using FX to symbolically trace …", 5)
    trial.problems.append((3, "no_grad", "2 parameters got no gradient"))
    labels, reason = outcomes(trial, Scenario(), "")
    assert labels == ["no_grad", "fx_error"]
    assert reason == "2 parameters got no gradient"


def test_a_consequence_alone_is_a_cause() -> None:
    trial = Trial()
    fail(trial, "the queue was aborted", 1, consequence=True)
    assert outcomes(trial, Scenario(), "")[0] == ["error"]


def test_what_the_tracing_thread_raises_after_a_collision_is_a_consequence() -> None:
    trial = Trial()
    fail(trial, "Detected that you are using FX to symbolically trace …", 5)
    trial.errors[0].tracers = [{"worker": "drafter-1", "thread": "drafter-1", "region": "attention", "stack": ""}]
    trial.error(RuntimeError("INTERNAL ASSERT FAILED"), Threads().current(), "drafter-1", 9)
    trial.error(RuntimeError("something else"), Threads().current(), "drafter-2", 9)
    assert outcomes(trial, Scenario(), "")[0] == ["fx_error", "error"]
    assert [error.consequence for error in trial.errors] == [False, True, False]
    trial.errors.pop()
    assert outcomes(trial, Scenario(), "")[0] == ["fx_error"]


def test_dense_calls_are_a_failure_unless_nothing_was_to_be_compiled() -> None:
    trial = Trial()
    trial.tally("drafter-0", "drafter").dense_calls = 3
    assert outcomes(trial, Scenario(), "")[0] == ["dense"]
    assert outcomes(trial, Scenario(compile="none"), "")[0] == ["ok"]


def test_the_document_is_json_even_with_losses_that_are_no_number() -> None:
    trial = trial_with(a=[(1, 10)])
    trial.workers["a"].losses = [1.0, float("nan"), float("inf"), None]
    document = build(trial, Scenario(), stuck=("hang", "why"), probes={}, extra={}, torch_version="2.13.0")
    assert json.loads(json.dumps(document, allow_nan=False))["workers"]["a"]["losses"] == [1.0, "nan", "inf", None]
    assert document["outcomes"] == ["hang"]
    assert document["reason"] == "why"


@pytest.mark.parametrize(("version", "marked"), [("2.11.0+cu130", True), ("2.13.0+cpu", False)])
def test_hooks_left_behind_by_a_failed_checkpoint_are_no_cause_of_their_own(version: str, marked: bool) -> None:
    """Up to torch 2.12 only; and never where it is the first error, for then it has another cause."""
    for first, expected in (("Detected that you are using FX to symbolically trace", marked), ("", False)):
        trial = Trial()
        if first:
            fail(trial, first, 1)
        fail(trial, "torch.utils.checkpoint: A different number of tensors was saved", 2)
        outcomes(trial, Scenario(), "", version)
        assert trial.errors[-1].consequence is expected
