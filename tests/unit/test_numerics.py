"""The comparison of losses with a reference."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.numerics import (
    agreement,
    agrees,
    compared,
    differences,
    is_unsettled,
    reference_key,
    reference_scenario,
    within_noise,
)
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


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(("loss", "reference", "found"), [
    ("nan", 4.0, 1), (4.0, "nan", 1), ("inf", 4.0, 1), (4.0, "inf", 1), ("inf", "-inf", 1), ("nan", "inf", 1), (NAN, 4.0, 1),
    ("nan", "nan", 0), ("inf", "inf", 0), (NAN, NAN, 0), ("soon", 4.0, 0),
])  # fmt: skip
def test_a_loss_that_is_no_finite_number_differs_from_any_other(loss: Any, reference: Any, found: int) -> None:
    """It is no step that raised, at which the comparison ends."""
    for dtype in ("bfloat16", "float32"):
        assert len(differences(drafters(a=[5.0, loss, 4.0]), drafters(a=[5.0, reference, 4.0]), dtype=dtype)) == found


def test_what_follows_two_losses_that_are_nan_is_compared() -> None:
    threaded, serial = drafters(a=["nan", 9.0]), drafters(a=["nan", 4.0])  # type: ignore[list-item]
    (only,) = differences(threaded, serial, dtype="float32")
    assert only.step == 1
    assert compared(threaded, serial) == 2


def test_references_of_which_one_is_nan_excuse_what_follows_and_nothing_before() -> None:
    """From the third step on: what comes a little later counts."""
    steps = [4.0] * 9
    again = drafters(a=[*steps[:6], "nan", 4.0, 4.0])  # type: ignore[list-item]
    for step in range(9):
        threaded = drafters(a=[*steps[:step], "nan", *steps[step + 1 :]])  # type: ignore[list-item]
        found = differences(threaded, drafters(a=steps), dtype="float32", again=again)  # type: ignore[arg-type]
        assert bool(found) is (step < 4), step


@pytest.mark.parametrize(("off", "stands"), [(0.02, False), (0.05, False), (0.14, False), (0.16, True)])
def test_a_difference_stands_beyond_the_tolerance_and_thrice_what_references_differ_by(off: float, stands: bool) -> None:
    threaded, first, again = drafters(a=[4.0 * (1 + off)]), drafters(a=[4.0]), drafters(a=[4.2])
    found = differences(threaded, first, dtype="bfloat16", again=again)
    assert bool(found) is stands
    if found:
        assert str(found[0]).endswith("(off by 0.16, tolerance 0.03, the reference from itself 0.05)")


def test_references_that_agree_excuse_nothing_beyond_the_tolerance() -> None:
    first = drafters(a=[4.0])
    assert len(differences(drafters(a=[4.0 * 1.04]), first, dtype="bfloat16", again=first)) == 1
    assert differences(drafters(a=[4.0 * 1.02]), first, dtype="bfloat16", again=first) == []


def test_what_counts_is_the_most_that_any_drafter_of_the_references_has_differed_by_so_far() -> None:
    """Two runs may cross by chance at any step."""
    first = drafters(a=[4.0] * 6, b=[4.0] * 6)
    again = drafters(a=[4.0, 4.2, 4.0, 4.0, 4.0, 4.0], b=[4.0] * 6)
    assert differences(drafters(a=[4.0] * 6, b=[4.0] * 5 + [4.5]), first, dtype="float32", again=again) == []


def test_what_references_differ_by_much_later_excuses_nothing() -> None:
    first, again = drafters(a=[4.0] * 40), drafters(a=[4.0] * 30 + [8.0] * 10)
    for step in range(40):
        threaded = drafters(a=[4.0] * step + [4.5] + [4.0] * (39 - step))
        found = differences(threaded, first, dtype="float32", again=again)
        assert bool(found) is (step < 20), step  # 20 and half as many further: the 30th


def test_a_drafter_acquitted_at_first_is_accused_of_what_follows() -> None:
    first, again = drafters(a=[4.0, 4.0]), drafters(a=[4.2, 4.0])
    (only,) = differences(drafters(a=[4.4, 9.0]), first, dtype="float32", again=again)
    assert (only.worker, only.step) == ("a", 1)


def test_the_measured_false_alarm_is_none() -> None:
    """Two honest runs of a drafter of 1.05 B parameters on two H200s, by step, and the trial that was accused."""
    off = [0.0, 0.0004, 0.0001, 0.0, 0.0, 0.0011, 0.0026, 0.0036, 0.0034, 0.0104, 0.0167, 0.0008, 0.0248, 0.0278, 0.0372]
    losses = [12.4] * 13 + [4.60323] * 2
    again = drafters(a=[loss * (1 + by) for loss, by in zip(losses, off, strict=True)])
    trial, first = drafters(a=[*losses[:13], 4.74458, losses[14]]), drafters(a=losses)  # type: ignore[list-item]
    (doubt,) = differences(trial, first, dtype="bfloat16")
    assert str(doubt) == "a, step 13: loss 4.74458, reference 4.60323 (off by 0.031, tolerance 0.03)"
    assert differences(trial, first, dtype="bfloat16", again=again) == []
    said = agreement(trial, first, dtype="bfloat16", again=again)
    assert said == "ok (a off by up to 0.031 at step 13, tolerance 0.03; the reference from itself by 0.037)"
    assert agrees(said)
    assert within_noise(said)
    assert not is_unsettled(said)
    wrong = drafters(a=[*losses[:13], 4.60323 * 1.2, losses[14]])  # type: ignore[list-item]
    assert len(differences(wrong, first, dtype="bfloat16", again=again)) == 1
