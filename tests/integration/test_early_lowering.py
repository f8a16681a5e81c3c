"""`dynamo = "early_lowering"`: no backward is lowered lazily, so what needs that cannot happen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from harness.control.executors import LocalExecutor
from harness.control.reproduce import reproduce
from harness.core.scenario import Scenario
from harness.hazards import find
from harness.torch_internals import early_lowering

BACKWARD = find("fx-flag-collision-backward")


@pytest.mark.skipif(bool(BACKWARD.why_not(torch.__version__)), reason="the hazard is not of this torch")
def test_the_plan_through_a_lazy_backward_is_unreachable(tmp_path: Path) -> None:
    """Its counterpart, without the setting, is reproduced in test_hazards_fx."""
    case = BACKWARD.case("program")
    assert case is not None
    case = dataclasses.replace(case, scenario=case.scenario.replace(dynamo="early_lowering"))
    executor = LocalExecutor()
    try:
        found = reproduce(case, executor, tmp_path, times=1, note=lambda _: None, timeout_s=120.0)
    finally:
        executor.close()
    assert found.ending.name == "unreachable", found.ending
    assert "backward_lowering.enter" in found.ending.reason
    assert found.row["outcomes"] == ["ok"]


def test_a_torch_without_the_setting_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_lowering, "NAME", "no_such_setting")
    found = early_lowering.lower_early()
    assert not found.ok
    assert "no_such_setting" in found.reason


def test_it_is_a_value_of_the_axis() -> None:
    assert Scenario(dynamo="early_lowering").id == "dynamo=early_lowering"
