"""Which hazards' plans a bisection asks about."""

from __future__ import annotations

import pytest

from harness.control.plan_oracle import _fits
from harness.core.scenario import Scenario

PER_DRAFTER = Scenario(shapes="per_drafter", drafters=2, steps=1)
WITH_CHECKPOINT = Scenario(checkpoint="non_reentrant", lock_owner="thread", devices="cuda:0")


@pytest.mark.parametrize(
    ("needed", "asked", "fits"),
    [
        (PER_DRAFTER, Scenario(shapes="per_drafter"), True),
        (PER_DRAFTER, Scenario(), False),
        (PER_DRAFTER, Scenario(devices="cuda:0+cuda:1"), True),  # each device compiles for itself
        (PER_DRAFTER, Scenario(devices="cuda:0+cuda:1/cuda:2"), False),  # all drafters on one
        (WITH_CHECKPOINT, Scenario(checkpoint="non_reentrant"), True),
        (WITH_CHECKPOINT, Scenario(checkpoint="reentrant"), False),
        (Scenario(workload="harness.subject.programs.pipeline_masks:Masks"), Scenario(), False),
        (Scenario(dynamo="nested_trace_allowed"), Scenario(), False),
    ],
)
def test_a_plan_is_asked_about_where_the_scenario_has_what_it_needs(
    needed: Scenario, asked: Scenario, fits: bool
) -> None:
    assert _fits(needed, asked) is fits
