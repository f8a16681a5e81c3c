"""`harness bisect torch` without torch: interpreters that are named like their version."""

from __future__ import annotations

import pytest
from fake_runs import FX_ERROR, FakeExecutor, make_row

from harness.control import bisect_torch, executors, plan_oracle
from harness.control.request import Row, TrialRequest


class Versions:
    """Interpreters that are not there, and an executor for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: set[str]) -> None:
        self.ran: list[str] = []

        def environment(python: str | None, options: object, question: object) -> dict[str, object]:
            return {"torch": python, "python": "3.11", "executable": python, "gpus": [], "variables": {}}

        def make(name: str, *, python: str, jobs: int) -> FakeExecutor:
            def outcome(request: TrialRequest) -> Row:
                self.ran.append(python)
                if python in fails:
                    return make_row(request, "fx_error", errors=[FX_ERROR])
                return make_row(request)

            return FakeExecutor(outcome)

        monkeypatch.setattr(bisect_torch, "environment_of", environment)
        monkeypatch.setattr(executors, "make_executor", make)
        monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: plan_oracle.NoPlans())
