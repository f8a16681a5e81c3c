"""Errors that ended a thread, what came after them, and what a watch that saw nothing says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_watch_told import mask_error, process, row

from harness.control.watch_rows import process_row
from harness.report.html import write_report
from harness.report.watched import summary, told

SEGV = 11
RAISED = """Traceback (most recent call last):
  File "/usr/lib/python3.12/threading.py", line 1012, in run
    self._target(*self._args, **self._kwargs)
  File "/home/me/train.py", line 15, in work
    flex_attention(q, k, v)
  File "/venv/lib/python3.12/site-packages/torch/nn/attention/flex_attention.py", line 1100, in flex_attention
    raise NotImplementedError
NotImplementedError: FlexAttention does not do this.
"""
UNFINISHED: dict[str, Any] = {"final": False, "how": "running"}


def raised(worker: str = "trainer-0", at_s: float = 0.001, **more: Any) -> dict[str, Any]:
    return mask_error(
        worker, label="error", type="NotImplementedError", message="FlexAttention does not do this.", traceback=RAISED,
        at_s=at_s, tracers=[], **more,
    )  # fmt: skip


def event(worker: str, at_ns: int, seen: str = "thread", label: str = "error", kind: str = "NotImplementedError") -> str:
    fields = {"t": at_ns, "th": worker, "id": 1, "w": worker, "k": "error", "label": label, "error": kind, "seen": seen}
    return json.dumps(fields) + "\n"


def logged(tmp_path: Path, *lines: str) -> Path:
    folder = tmp_path / "process-1"
    folder.mkdir()
    (folder / "events.jsonl").write_text("".join(lines))
    return folder


def wrongs(found: dict[str, Any]) -> list[str]:
    return [one.text for one in told(found) if one.wrong and one.topic != "hazard"]


def test_an_error_that_the_account_has_ended_its_thread_and_then_the_process_went(tmp_path: Path) -> None:
    logged(tmp_path, event("trainer-0", 1_500_000))
    found = row(tmp_path, SEGV, errors=[raised()], outcomes=["error"], outcome="error", **UNFINISHED)
    assert [(error["worker"], error["seen"]) for error in found["errors"]] == [("trainer-0", "thread")]
    assert found["outcomes"] == ["error", "crash"]
    (said,) = wrongs(found)
    assert said == (
        "trainer-0 ended by NotImplementedError: FlexAttention does not do this (train.py:15); "
        "then the process ended by SIGSEGV"
    )


def test_an_error_that_only_an_event_tells_of_is_in_the_row(tmp_path: Path) -> None:
    logged(tmp_path, event("trainer-0", 1_500_000), event("trainer-1", 2_500_000), event("trainer-1", 3_500_000, "future"))
    found = row(tmp_path, SEGV, errors=[raised()], outcomes=["error"], outcome="error", **UNFINISHED)
    assert [(error["worker"], error["seen"], bool(error["traceback"])) for error in found["errors"]] == [
        ("trainer-0", "thread", True),
        ("trainer-1", "thread", False),
        ("trainer-1", "future", False),
    ]
    alone = row(tmp_path, SEGV, **UNFINISHED)
    assert alone["outcome"] == "error"
    assert len(alone["errors"]) == 3


def test_a_process_without_any_account_has_the_errors_of_its_events(tmp_path: Path) -> None:
    folder = logged(tmp_path, event("trainer-0", 1_500_000))
    found = process_row(process(folder), program="train.py", status=SEGV, killed=False)
    assert wrongs(found) == ["trainer-0 ended by NotImplementedError; then the process ended by SIGSEGV"]
    assert found["outcomes"] == ["error", "crash"]


def test_an_account_that_is_final_is_complete(tmp_path: Path) -> None:
    logged(tmp_path, event("trainer-0", 1_500_000), event("trainer-1", 2_500_000))
    assert len(row(tmp_path, errors=[raised()], outcomes=["error"], outcome="error")["errors"]) == 1


def test_a_refused_call_that_only_an_event_tells_of_counts(tmp_path: Path) -> None:
    logged(tmp_path, event("trainer-1", 1_500_000, "thread", "fx_error", "RuntimeError"))
    found = row(tmp_path, SEGV, **UNFINISHED)
    assert (found["fx_errors"], found["outcomes"]) == (1, ["fx_error", "crash"])
    (said,) = wrongs(found)
    assert said == (
        "1 compiled call refused with the FX-tracing error: first trainer-1, which ended trainer-1. "
        "The process then ended by SIGSEGV"
    )


def test_events_that_are_damaged_cost_a_word(tmp_path: Path) -> None:
    logged(tmp_path, "no event\n")
    found = row(tmp_path, errors=[raised()], outcomes=["ok"])
    assert len(found["errors"]) == 1
    assert "line 1 is not an event" in found["problems"][-1]["text"]


def test_what_a_label_is_about_comes_before_how_the_process_ended(tmp_path: Path) -> None:
    error = mask_error(
        "trainer-1", label="fx_error", type="RuntimeError", region="forward", step=3, traceback="", message="Detected",
        tracers=[{"thread": "trainer-0", "worker": "trainer-0", "region": "", "stack": ""}],
    )  # fmt: skip
    found = row(tmp_path, SEGV, fx_errors=1, errors=[error], outcomes=["fx_error"], outcome="fx_error", **UNFINISHED)
    (said,) = wrongs(found)
    assert said == (
        "1 compiled call refused with the FX-tracing error: first trainer-1 in forward, step 3, while trainer-0 was "
        "tracing. The process then ended by SIGSEGV"
    )


def test_a_label_that_nothing_explains_does_not_take_the_ending_for_its_cause(tmp_path: Path) -> None:
    found = row(tmp_path, SEGV, outcomes=["fx_error"], outcome="fx_error", **UNFINISHED)
    assert wrongs(found) == ["crash: the process ended by SIGSEGV"]


def test_a_hang_beside_an_error_keeps_its_label(tmp_path: Path) -> None:
    found = row(tmp_path, 9, True, "C has it", errors=[raised()], outcomes=["error"], outcome="error", **UNFINISHED)
    assert wrongs(found)[0] == "hang: C has it"


@pytest.mark.parametrize("place", ["/venv/lib/python3.12/site-packages/x.py", "<string>"])
def test_no_place_where_no_file_of_the_program_has_part(tmp_path: Path, place: str) -> None:
    logged(tmp_path, event("trainer-0", 1_500_000))
    error = {**raised(), "traceback": f'Traceback\n  File "{place}", line 3, in f\nNotImplementedError\n'}
    found = row(tmp_path, errors=[error], outcomes=["error"], outcome="error")
    assert wrongs(found) == ["trainer-0 ended by NotImplementedError: FlexAttention does not do this"]


def test_several_threads_that_ended_alike(tmp_path: Path) -> None:
    logged(tmp_path, event("a", 1_500_000), event("b", 2_500_000))
    errors = [raised("a"), raised("b", 0.002)]
    found = row(tmp_path, errors=errors, outcomes=["error"], outcome="error")
    assert wrongs(found)[0].startswith("a and b ended by NotImplementedError: ")


@pytest.mark.parametrize("result", [{}, {"errors": [raised()], "outcomes": ["error"], "outcome": "error"}])
def test_the_last_line_is_the_next_command_where_something_failed(tmp_path: Path, result: dict[str, Any]) -> None:
    found = row(tmp_path, SEGV, **{**UNFINISHED, **result})
    lines = summary([found], [], "r.html", quiet=False, run="runs/a b").splitlines()
    assert lines[-2:] == ["  Report: r.html", "  Next: harness explain 'runs/a b/trials/process-1'"]
    assert summary([row(tmp_path)], [], "r.html", quiet=False, run="run").endswith("  Report: r.html")


def test_an_exit_code_is_not_called_nothing_wrong(tmp_path: Path) -> None:
    text = summary([row(tmp_path, 2 << 8)], [], "r.html", quiet=False)
    assert "train.py ended with exit code 2; nothing of what is watched for was seen" in " ".join(text.split())
    assert "othing wrong" not in text
    assert summary([row(tmp_path, 2 << 8)], [], "r.html", quiet=True) == ""


def test_the_page_has_the_error_and_the_ending(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "trials").mkdir(parents=True)
    logged(run / "trials", event("trainer-0", 1_500_000))
    found = row(run / "trials", SEGV, **UNFINISHED)
    (run / "results.jsonl").write_text(json.dumps(found) + "\n")
    (run / "environment.json").write_text(json.dumps({"schema": 1, "kind": "watch"}))
    page = write_report(run).read_text("utf-8")
    assert "<h1>trainer-0 ended by NotImplementedError; then the process ended by SIGSEGV.</h1>" in page
    errors = page[page.index('<section id="errors"') : page.index('<section id="stuck"')]
    assert "NotImplementedError" in errors
    assert "None." not in errors
