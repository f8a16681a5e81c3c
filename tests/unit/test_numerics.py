"""The comparison of losses with a reference."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_drift import simulate

from harness.analysis.numerics import (
    NOT_TOLD,
    agreement,
    agrees,
    compared,
    differences,
    is_unsettled,
    reference_key,
    reference_scenario,
    unsettled,
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


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_references_of_which_one_is_nan_settle_nothing_from_shortly_before(runs: int) -> None:
    """From the third step before on: what comes a little later counts. No further run would tell."""
    steps = [4.0] * 9
    first, again = drafters(a=[*steps[:2], 4.01, *steps[3:]]), drafters(a=[*steps[:6], "nan", 4.0, 4.0])  # type: ignore[list-item]
    others = [again, first, first][: runs - 1]
    for wrong in ("nan", 9.0):
        for step in range(9):
            threaded = drafters(a=[*steps[:step], wrong, *steps[step + 1 :]])  # type: ignore[list-item]
            (only,) = differences(threaded, first, dtype="bfloat16", others=others)
            assert only.told is (step < 4), step
            assert only.in_doubt is (step < 4 and runs == 2), step
            assert only.stands is (step < 4 and runs > 2), step
            said = str(only) + unsettled([only], "it hung")
            assert is_unsettled(said)
            assert said.endswith("; the reference could not be run again: it hung" if only.in_doubt else NOT_TOLD)


def test_drifting_references_that_all_overflow_at_one_step_do_not_tell_at_which_a_trial_does() -> None:
    first, *others = (drafters(a=[4.0, by, 4.0, 4.0, 4.0, "nan", "nan"]) for by in (4.0, 4.01, 4.02))  # type: ignore[list-item]
    for at, told in ((1, True), (2, True), (3, False), (4, False), (7, False)):
        threaded = drafters(a=[4.0] * at + ["nan"] * (7 - at))  # type: ignore[list-item]
        (only,) = differences(threaded, first, dtype="bfloat16", others=others)
        assert (only.told, only.stands) == (told, told), at
    alike = drafters(a=[4.0] * 5 + ["nan"] * 2)  # type: ignore[list-item]
    (only,) = differences(drafters(a=[4.0] * 4 + ["nan"] * 3), alike, dtype="bfloat16", others=[alike])  # type: ignore[list-item]
    assert only.stands, "where they agree to the bit they tell"


def test_an_overflow_of_one_drafter_neither_excuses_nor_hides_another_whose_references_are_alike() -> None:
    steps = [4.0] * 9
    first, again = (drafters(a=[*steps[:at], *["nan"] * (9 - at)], b=steps) for at in (6, 7))  # type: ignore[list-item, arg-type]
    for wrong in (50.0, "nan"):
        threaded = drafters(a=first["a"]["losses"], b=[*steps[:7], wrong, 4.0])  # type: ignore[list-item]
        (only,) = differences(threaded, first, dtype="bfloat16", others=[again])
        assert (only.worker, only.stands, only.itself) == ("b", True, 0.0)


@pytest.mark.parametrize(("off", "excused"), [(0.02, True), (0.05, True), (0.14, True), (0.23, False)])
@pytest.mark.parametrize("runs", [2, 3, 4])
def test_what_is_beyond_the_tolerance_and_thrice_the_drift_stands_by_three_references(
    off: float, excused: bool, runs: int
) -> None:
    threaded, first = drafters(a=[4.0 * (1 + off)]), drafters(a=[4.0])
    others = [drafters(a=[loss]) for loss in (4.2, 4.1, 4.0)][: runs - 1]
    found = differences(threaded, first, dtype="bfloat16", others=others)
    assert bool(found) is not excused
    for one in found:
        assert (one.stands, one.in_doubt) == (runs > 2, runs == 2)
        more = "" if runs == 2 else f" in {runs} runs"
        assert str(one).endswith(f"(off by 0.23, tolerance 0.03, the reference from itself 0.05{more})")


def test_a_trial_has_to_leave_every_reference() -> None:
    first, others = drafters(a=[4.0]), [drafters(a=[4.2]), drafters(a=[4.6])]
    (stands,) = differences(drafters(a=[6.8]), first, dtype="bfloat16", others=others)
    assert stands.stands
    near = drafters(a=[6.5])  # 0.63 from the first, 0.41 from the last; thrice what they differ by is 0.45
    assert differences(near, first, dtype="bfloat16", others=others) == []
    said = agreement(near, first, dtype="bfloat16", others=others)
    assert said == "ok (a off by up to 0.62 at step 0, tolerance 0.03; the reference from itself by 0.15 in 3 runs)"


def test_within_the_tolerance_of_one_reference_nothing_is_said() -> None:
    first, others = drafters(a=[4.0]), [drafters(a=[4.04]), drafters(a=[4.02])]
    assert differences(drafters(a=[4.15]), first, dtype="bfloat16", others=others) == [], "0.038 and 0.027"


def test_drafters_whose_own_references_are_alike_are_excused_by_nobodys_drift() -> None:
    first, again = drafters(a=[4.0, 4.0], b=[4.0, 4.0]), drafters(a=[4.0, 5.2], b=[4.0, 4.0])
    a, b = drafters(a=[4.0, 5.8], b=[4.0, 4.0]), drafters(a=[4.0, 4.0], b=[4.0, 4.5])
    assert differences(a, first, dtype="bfloat16", others=[again]) == []
    (only,) = differences(b, first, dtype="bfloat16", others=[again])
    assert only.stands
    assert str(only) == "b, step 1: loss 4.5, reference 4 (off by 0.12, tolerance 0.03, the reference from itself 0)"
    further = drafters(a=[4.0, 5.2], b=[4.0, 4.0001])
    assert differences(b, first, dtype="bfloat16", others=[again, further]) == [], "alike in all runs, or not at all"


def test_of_a_drafter_what_stands_is_told_before_what_does_not() -> None:
    steps = [4.0] * 6
    first, *others = (drafters(a=steps, b=[4.0, by, *["nan"] * 2, by, by]) for by in (4.0, 4.01, 4.02))  # type: ignore[list-item, arg-type]
    threaded = drafters(a=steps, b=[4.0, 4.0, 4.0, 4.0, 4.0, 9.0])
    for further, stands in ((others, True), (others[:1], False)):
        (only,) = differences(threaded, first, dtype="bfloat16", others=further)
        assert (only.step, only.stands, only.in_doubt) == (5, stands, not stands)


def test_references_that_agree_excuse_nothing_beyond_the_tolerance() -> None:
    first = drafters(a=[4.0])
    assert len(differences(drafters(a=[4.0 * 1.04]), first, dtype="bfloat16", others=[first])) == 1
    assert differences(drafters(a=[4.0 * 1.02]), first, dtype="bfloat16", others=[first]) == []


def test_what_counts_is_the_most_that_any_drafter_of_the_references_has_differed_by_so_far() -> None:
    """Two runs may cross by chance at any step."""
    first = drafters(a=[4.0] * 6, b=[4.0] * 6)
    again = drafters(a=[4.0, 4.2, 4.0, 4.0, 4.0, 4.0], b=[4.0] * 5 + [4.0001])
    assert differences(drafters(a=[4.0] * 6, b=[4.0] * 5 + [4.5]), first, dtype="float32", others=[again]) == []


def test_what_references_differ_by_much_later_excuses_nothing() -> None:
    first, again = drafters(a=[4.0] * 40), drafters(a=[4.0] * 30 + [8.0] * 10)
    for step in range(40):
        threaded = drafters(a=[4.0] * step + [4.5] + [4.0] * (39 - step))
        found = differences(threaded, first, dtype="float32", others=[again])
        assert bool(found) is (step < 20), step  # 20 and half as many further: the 30th


def test_a_drafter_acquitted_at_first_is_accused_of_what_follows() -> None:
    first, again = drafters(a=[4.0, 4.0]), drafters(a=[4.2, 4.0])
    (only,) = differences(drafters(a=[4.4, 9.0]), first, dtype="float32", others=[again])
    assert (only.worker, only.step) == ("a", 1)


def test_the_measured_false_alarm_is_none() -> None:
    """Two honest runs of a drafter of 1.05 B parameters on two H200s, by step, and the trial that was accused."""
    off = [0.0, 0.0004, 0.0001, 0.0, 0.0, 0.0011, 0.0026, 0.0036, 0.0034, 0.0104, 0.0167, 0.0008, 0.0248, 0.0278, 0.0372]
    losses = [12.4] * 13 + [4.60323] * 2
    again = drafters(a=[loss * (1 + by) for loss, by in zip(losses, off, strict=True)])
    trial, first = drafters(a=[*losses[:13], 4.74458, losses[14]]), drafters(a=losses)  # type: ignore[list-item]
    (doubt,) = differences(trial, first, dtype="bfloat16")
    assert str(doubt) == "a, step 13: loss 4.74458, reference 4.60323 (off by 0.031, tolerance 0.03)"
    assert differences(trial, first, dtype="bfloat16", others=[again]) == []
    said = agreement(trial, first, dtype="bfloat16", others=[again])
    assert said == "ok (a off by up to 0.031 at step 13, tolerance 0.03; the reference from itself by 0.037)"
    assert agrees(said)
    assert within_noise(said)
    assert not is_unsettled(said)
    wrong = drafters(a=[*losses[:13], 4.60323 * 1.2, losses[14]])  # type: ignore[list-item]
    assert len(differences(wrong, first, dtype="bfloat16", others=[again])) == 1


@pytest.mark.parametrize(("model", "drafters"), [("independent", 2), ("correlated", 1), ("walk", 1), ("walk", 3)])
def test_what_drifts_by_itself_calls_hardly_any_strategy_unsafe_in_59_trials(model: str, drafters: int) -> None:
    """The whole of it is `tests/benchmarks/numerics_alarms.py`."""
    found = simulate(model, drafters, 0.02, 50)
    assert found.by_all <= 2
    assert found.broken_trials > 95
    assert found.by_two > 15 or model == "independent" or drafters > 1, "two references are not enough"


SHORT = drafters(a=[5.0])
WHOLE = drafters(a=[5.0, 4.0, 3.0])


@pytest.mark.parametrize(("others", "stands", "in_doubt"), [
    ([], False, True),
    ([SHORT], False, True),
    ([SHORT, SHORT, SHORT], False, True),
    ([SHORT, WHOLE, SHORT], True, False),
    ([SHORT, drafters(a=[5.0, 4.0, 3.1]), SHORT], False, True),
    ([SHORT, drafters(a=[5.0, 4.0, 3.1]), drafters(a=[5.0, 4.0, 3.2])], True, False),
])  # fmt: skip
def test_references_that_end_before_a_step_say_nothing_of_it(others: list[Any], stands: bool, in_doubt: bool) -> None:
    """Two that agree to the bit where both tell a loss do not agree on what but one of them tells."""
    (only,) = differences(drafters(a=[5.0, 4.0, 9.0]), WHOLE, dtype="float32", others=others)
    assert (only.step, only.stands, only.in_doubt) == (2, stands, in_doubt)


def test_what_no_further_run_of_the_reference_tells_is_not_settled() -> None:
    found = differences(drafters(a=[5.0, 4.0, 9.0]), WHOLE, dtype="float32", others=[SHORT, SHORT, SHORT])
    said = f"{found[0]}{unsettled(found, '')}"
    assert said.endswith("; the reference could not be run again: its further runs end before that step")
    assert is_unsettled(said)
