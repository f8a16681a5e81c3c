"""The row of a trial that ended without an account: what its errors and its events tell."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.control.last_words import MOST_ERRORS
from harness.control.request import TrialRequest
from harness.control.rows import Ending, trial_row
from harness.core.endings import Effect, judge
from harness.core.events import event_line
from harness.core.plan import Plan
from harness.core.scenario import Scenario

S = 1_000_000_000
ABORTED, KILLED = Ending(int(signal.SIGABRT), "exited", 9.0, 0.1), int(signal.SIGKILL)


def event(at: float, kind: str, worker: str, **more: Any) -> dict[str, Any]:
    return {"t": int(at * S), "th": worker or "MainThread", "id": hash(worker), "w": worker, "k": kind, **more}


def begun(*workers: str) -> list[dict[str, Any]]:
    starts = [event(0.3, "worker.start", name, role=name.split("-")[0]) for name in workers]
    return [event(0.1, "subject.ready", ""), event(0.2, "subject.begin", ""), *starts]


def error(at: float, label: str, worker: str, step: int = 0, **more: Any) -> dict[str, Any]:
    """As `harness.subject.errorlog` writes it."""
    shown = {"label": label, "type": "RuntimeError", "message": f"planted {label}", "fingerprint": "f", "worker": worker}
    place = {"thread": worker, "region": "forward", "step": step, "at_s": at, "stage": "", "consequence": False}
    clock = {"torch": "2.13.0+cpu", "clock_start_ns": 5}
    return {**shown, **place, "traceback": f"Traceback of {label}", "tracers": [], **clock, **more}


def row_of(
    folder: Path,
    events: list[dict[str, Any]],
    errors: list[dict[str, Any]] | None = None,
    ending: Ending = ABORTED,
    **axes: Any,
) -> dict[str, Any]:
    (folder / "events.jsonl").write_text("".join(map(event_line, events)), "utf-8")
    if errors is not None:
        (folder / "errors.jsonl").write_text("".join(json.dumps(one) + "\n" for one in errors), "utf-8")
    return trial_row(TrialRequest("t", Scenario(**axes), 0, folder), ending)


def failed(at: float, worker: str, label: str, step: int = 0) -> dict[str, Any]:
    return event(at, "step.failed", worker, step=step, label=label, error="RuntimeError")


def test_a_loss_that_was_no_finite_number_is_no_step_that_raised(tmp_path: Path) -> None:
    events = [*begun("drafter-0"), event(1, "step.done", "drafter-0", step=0, tokens=3, loss=None, not_finite="nan")]
    assert row_of(tmp_path, events)["workers"]["drafter-0"]["losses"] == ["nan"]


THREE = [
    *begun("target-0", "drafter-0", "drafter-1"),
    event(1, "step.done", "target-0", step=0, tokens=9, loss=None),
    event(2, "step.done", "drafter-0", step=0, tokens=3, loss=0.5),
    failed(3.1, "drafter-1", "cudagraph_tls"),
    failed(4.1, "drafter-0", "cuda_fault", step=1),
]
TWO = [error(4, "cuda_fault", "drafter-0", step=1), error(3, "cudagraph_tls", "drafter-1")]


def test_the_earliest_cause_is_primary_and_the_crash_comes_last(tmp_path: Path) -> None:
    row = row_of(tmp_path, THREE, TWO)
    assert (row["outcome"], row["outcomes"]) == ("cudagraph_tls", ["cudagraph_tls", "cuda_fault", "crash"])
    assert row["reason"] == "the process ended by SIGABRT"
    assert [one["traceback"] for one in row["errors"]] == ["Traceback of cudagraph_tls", "Traceback of cuda_fault"]
    assert not {"torch", "clock_start_ns"} & row["errors"][0].keys()
    assert (row["torch"], row["steps_ok"], row["steps_failed"]) == ("2.13.0+cpu", 1, 2)
    assert row["evidence"] == ["errors.jsonl", "events.jsonl"]
    first = row["workers"]["drafter-0"]
    assert (first["role"], first["steps_ok"], first["steps_failed"], first["losses"]) == ("drafter", 1, 1, [0.5, None])
    assert (first["tokens"], first["first_good_s"], first["first_error_step"]) == (3, 2.0, 1)


@pytest.mark.parametrize(
    ("ending", "last"),
    [
        (Ending(KILLED, "timeout", 9.0, 0.1), "hang"),
        (Ending(KILLED, "hang", 9.0, 0.1, cycle=True), "deadlock"),
        (Ending(KILLED, "exited", 9.0, 0.1, for_memory=True), "out_of_memory"),
    ],
)
def test_another_end_comes_last_too(tmp_path: Path, ending: Ending, last: str) -> None:
    assert row_of(tmp_path, THREE, TWO, ending)["outcomes"] == ["cudagraph_tls", "cuda_fault", last]


def test_an_interrupt_says_nothing_and_keeps_the_tracebacks(tmp_path: Path) -> None:
    row = row_of(tmp_path, THREE, TWO, Ending(KILLED, "killed", 9.0, 0.1))
    assert (row["outcomes"], len(row["errors"])) == (["interrupted"], 2)


def test_a_death_in_the_set_up_stays_one(tmp_path: Path) -> None:
    told = [error(1, "error", "", stage="set-up", thread="MainThread")]
    row = row_of(tmp_path, [event(0.1, "subject.ready", "")], told)
    assert (row["outcomes"], len(row["errors"]), row["workers"]) == (["setup_error"], 1, {})


@pytest.mark.parametrize(
    "torn", ['{"label": "fx_er', '{"label": "fx_error", "at_s": 1.0, "tra', "\udcff", '{"label": "none", "at_s": 1}']
)
def test_a_torn_line_is_left_out(tmp_path: Path, torn: str) -> None:
    row = row_of(tmp_path, THREE, TWO)
    with open(tmp_path / "errors.jsonl", "ab") as file:
        file.write(torn.encode("utf-8", "surrogateescape"))
    again = trial_row(TrialRequest("t", Scenario(), 0, tmp_path), ABORTED)
    assert again == row
    with open(tmp_path / "errors.jsonl", "ab") as file:  # the disk had no room for its rest, and then it had
        file.write(b"\n" + json.dumps(error(5, "graph_corrupt", "drafter-2")).encode() + b"\n")
    assert trial_row(TrialRequest("t", Scenario(), 0, tmp_path), ABORTED)["outcomes"][2:] == ["graph_corrupt", "crash"]


def test_an_error_of_which_only_the_event_was_written_still_names_the_trial(tmp_path: Path) -> None:
    row = row_of(tmp_path, THREE, TWO[:1])
    assert row["outcomes"] == ["cudagraph_tls", "cuda_fault", "crash"]
    assert [(one["label"], one["traceback"]) for one in row["errors"]] == [
        ("cudagraph_tls", ""),
        ("cuda_fault", "Traceback of cuda_fault"),
    ]
    (tmp_path / "errors.jsonl").unlink()
    assert row_of(tmp_path, THREE)["outcomes"] == ["cudagraph_tls", "cuda_fault", "crash"]


def test_no_more_errors_are_kept_than_a_result_has(tmp_path: Path) -> None:
    many = [failed(1 + n, "drafter-0", "error", step=n) for n in range(MOST_ERRORS + 5)]
    row = row_of(tmp_path, [*begun("drafter-0"), *many], [error(1, "error", "drafter-0")])
    assert (len(row["errors"]), row["errors_dropped"], row["steps_failed"]) == (MOST_ERRORS, 5, MOST_ERRORS + 5)


def test_consequences_are_left_out(tmp_path: Path) -> None:
    tracer = {"worker": "drafter-1", "thread": "drafter-1", "region": "mask", "stack": ""}
    told = [error(3, "fx_error", "drafter-0", tracers=[tracer]), error(4, "error", "drafter-1")]
    row = row_of(tmp_path, begun("drafter-0", "drafter-1"), told)
    assert (row["outcomes"], row["fx_errors"]) == (["fx_error", "crash"], 1)
    assert [one["consequence"] for one in row["errors"]] == [False, True]
    astray = [error(3, "cuda_fault", "drafter-0"), error(4, "error", "drafter-1", message="torch.utils.checkpoint: planted")]
    assert row_of(tmp_path, begun("drafter-0"), astray)["outcomes"] == ["cuda_fault", "error", "crash"]
    older = [{**one, "torch": "2.11.0"} for one in astray]
    assert row_of(tmp_path, begun("drafter-0"), older)["outcomes"] == ["cuda_fault", "crash"]


def test_findings_and_uncompiled_calls_have_their_place_in_time(tmp_path: Path) -> None:
    events = [
        *begun("drafter-0"),
        event(1, "dense.call", "drafter-0"),
        event(2, "grad.missing", "drafter-0", n=2, first="k_proj.weight"),
        event(3, "finding", "drafter-0", label="state_leak"),
        event(4, "dense.call", "drafter-0"),
        event(5, "compile.end", "drafter-0", what="graph", ok=True),
    ]
    row = row_of(tmp_path, events)
    assert row["outcomes"] == ["dense", "no_grad", "state_leak", "crash"]
    assert (row["dense_calls"], row["compiles"]) == (2, 1)
    assert [one["label"] for one in row["problems"]] == ["no_grad", "state_leak"]
    assert "k_proj.weight" in row["problems"][0]["text"]
    assert row_of(tmp_path, events, compile="none")["outcomes"] == ["no_grad", "state_leak", "crash"]


def test_good_steps_under_a_lock_are_not_said_to_have_held_nothing(tmp_path: Path) -> None:
    assert not row_of(tmp_path, THREE, TWO, lock="first_step").get("problems")


def test_a_plan_whose_effect_came_before_the_death_has_reproduced_it(tmp_path: Path) -> None:
    effect = Effect(labels=("cudagraph_tls",), text="planted cudagraph_tls")
    assert judge(Plan({}, ()), effect, row_of(tmp_path, THREE, TWO)).name == "reproduced"


def test_a_result_is_the_truth_and_the_file_goes(tmp_path: Path) -> None:
    result = {"outcomes": ["dense"], "steps_ok": 7, "errors": [], "workers": {}}
    (tmp_path / "result.json").write_text(json.dumps(result), "utf-8")
    row = row_of(tmp_path, THREE, TWO)
    assert (row["outcomes"], row["errors"], row["steps_ok"], row["workers"]) == (["dense"], [], 7, {})
    assert not (tmp_path / "errors.jsonl").exists()
    assert row["evidence"] == ["events.jsonl", "result.json"]
