"""Runs without subjects: an executor that makes its rows up, and rows to make them from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.control.request import OnStart, Row, TrialRequest
from harness.control.rows import skipped_row
from harness.core.matrix import Matrix, parse_matrix
from harness.core.scenario import Scenario

MATRIX = """\
schema = 1
[defaults]
repeats = 2
[axes]
lock = ["none", "first_step"]
checkpoint = ["none", "reentrant"]
"""

FX_ERROR: dict[str, Any] = {
    "label": "fx_error",
    "type": "RuntimeError",
    "message": "Detected that you are using FX to symbolically trace a dynamo-optimized function.",
    "fingerprint": "f00dcafe RuntimeError torch/_dynamo/eval_frame.py:compile_wrapper",
    "worker": "drafter-1",
    "thread": "Thread-2",
    "region": "attention",
    "step": 0,
    "traceback": "Traceback (most recent call last):\n  the traceback\n",
    "consequence": False,
    "tracers": [{"thread": "Thread-1", "worker": "drafter-0", "region": "mask", "stack": "the stack\n"}],
}


def matrix(text: str = MATRIX) -> Matrix:
    return parse_matrix(text, file="m.toml")


def make_row(request: TrialRequest, *outcomes: str, **fields: Any) -> Row:
    """A row of a trial that ran, `ok` unless outcomes are given."""
    labels = list(outcomes) or ["ok"]
    measured = {"startup_s": 1.5, "tokens_per_s": 1000.0, "compiles": 2, "wall_s": 2.0, "torch": "2.11.0+cpu"}
    return {**skipped_row(request, ""), "outcome": labels[0], "outcomes": labels, **measured, **fields}


def row(scenario: Scenario | None = None, repeat: int = 0, *outcomes: str, **fields: Any) -> Row:
    """A row without a run."""
    scenario = scenario or Scenario()
    request = TrialRequest(f"{scenario.id}--r{repeat}", scenario, repeat, Path("nowhere"))
    return make_row(request, *outcomes, **fields)


def fx_row(scenario: Scenario, repeat: int = 0) -> Row:
    """A trial with the FX error."""
    return row(scenario, repeat, "fx_error", fx_errors=1, errors=[FX_ERROR], tokens_per_s=None, startup_s=None)


class FakeExecutor:
    """Runs nothing. `outcome` makes the row of a request; `before` is called before each trial ends.

    References, which are no trials, always end well and are not in `ran`.
    """

    def __init__(
        self,
        outcome: Callable[[TrialRequest], Row] = make_row,
        before: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.outcome = outcome
        self.before = before
        self.ran: list[str] = []
        self.closed = False

    def run(
        self,
        trials: Sequence[TrialRequest],
        on_start: OnStart,
        on_row: Callable[[Row], None],
    ) -> None:
        number = -1  # of the trial
        for request in trials:
            if on_start(request) is False:
                continue
            if request.extra.get("reference"):
                on_row(make_row(request))
                continue
            number += 1
            assert request.folder.is_dir()
            assert not list(request.folder.iterdir())
            request.write_spec()
            try:
                self.before(number)
            except KeyboardInterrupt:
                on_row(make_row(request, "interrupted", startup_s=None, tokens_per_s=None))
                raise
            self.ran.append(request.trial_id)
            on_row(self.outcome(request))

    def close(self) -> None:
        self.closed = True
