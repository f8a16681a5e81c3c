"""The comparison of losses with a reference."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.numerics import compared, differences, reference_key, reference_scenario
from harness.core.scenario import Scenario


def drafters(**losses: list[float | None]) -> dict[str, dict[str, Any]]:
    return {name: {"role": "drafter", "losses": found} for name, found in losses.items()}


def test_equal_losses_do_not_differ() -> None:
    assert differences(drafters(a=[5.0, 4.0]), drafters(a=[5.0, 4.0]), dtype="float32") == []


@pytest.mark.parametrize(("dtype", "off", "found"), [
    ("float32", 2e-4, 1), ("float32", 0.5e-4, 0), ("bfloat16", 2e-2, 0), ("bfloat16", 5e-2, 1),
])  # fmt: skip
def test_the_tolerance_is_the_dtypes(dtype: str, off: float, found: int) -> None:
    assert len(differences(drafters(a=[4.0 * (1 + off)]), drafters(a=[4.0]), dtype=dtype)) == found


def test_the_first_difference_is_named_by_drafter_and_step() -> None:
    (only,) = differences(drafters(a=[5.0, 4.5, 9.0], b=[5.0]), drafters(a=[5.0, 4.0, 3.0], b=[5.0]), dtype="float32")
    assert (only.worker, only.step) == ("a", 1)
    assert str(only) == "a, step 1: loss 4.5, reference 4 (off by 0.12, tolerance 0.0001)"


def test_a_drafter_is_compared_up_to_its_first_error() -> None:
    assert differences(drafters(a=[5.0, None, 9.0]), drafters(a=[5.0, 4.0, 3.0]), dtype="float32") == []


def test_a_synchronised_drafter_is_compared_up_to_anybodys_first_error() -> None:
    threaded, serial = drafters(a=[5.0, None], b=[5.0, 9.0]), drafters(a=[5.0, 4.0], b=[5.0, 4.0])
    assert differences(threaded, serial, dtype="float32", synchronised=True) == []
    assert len(differences(threaded, serial, dtype="float32")) == 1


def test_targets_have_no_losses_to_compare() -> None:
    assert differences({"t": {"role": "target", "losses": [1.0]}}, {}, dtype="float32") == []


def test_what_both_have_is_what_is_compared() -> None:
    found = drafters(a=[5.0, None, 9.0], b=[5.0, 4.0])
    assert compared(found, drafters(a=[5.0, 4.0, 3.0], b=[None, 4.0])) == 1
    assert compared(found, drafters(b=[5.0, 4.0])) == 2
    assert compared(found, drafters(b=[5.0, 4.0]), synchronised=True) == 1, "up to anybody's first error"
    assert compared(found, {}) == compared(drafters(a=[None]), drafters(a=[5.0])) == 0


def test_axes_that_only_move_work_about_share_a_reference() -> None:
    one = Scenario(lock="first_step", warmup="main_grad", targets=2, dynamo="nested_trace_allowed")
    assert reference_key(one, {}) == reference_key(Scenario(), {})
    for other in (Scenario(seed=1), Scenario(checkpoint="reentrant"), Scenario(shapes="variable"), Scenario(drafters=2)):
        assert reference_key(other, {}) != reference_key(Scenario(), {})
    assert reference_key(Scenario(), {"tokens": 64}) != reference_key(Scenario(), {})
    assert reference_scenario(one).lock == "none"
