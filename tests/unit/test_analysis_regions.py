"""The smallest set of regions, and the way in which they have to be held."""

from __future__ import annotations

import random

import pytest

from harness.analysis.intervals import trials_for_safe
from harness.analysis.ladder import TRIES
from harness.analysis.regions import BY_THEMSELVES, ONE_HOLD, UNTIL_WARM, RegionAnswer, RegionSearch, RegionTrial
from harness.analysis.verdicts import NOTHING_TO_FIX


def find(safe: set[str], rate: float = 1.0, seed: int = 1) -> tuple[RegionAnswer, list[RegionTrial]]:
    """Search where these locks are safe and all others fail at this rate."""
    dice = random.Random(seed)
    search = RegionSearch()
    trials: list[RegionTrial] = []
    while not isinstance(step := search.batch(1), RegionAnswer):
        assert isinstance(step, list)
        (trial,) = step
        trials.append(trial)
        assert search.trial_of(trial.lock, trial.context, trial.schedule, trial.purpose) == trial
        failed = trial.lock not in safe and dice.random() < rate
        search.record(trial, failed, witness={"trial": f"t{len(trials)}"} if failed else None)
    return step, trials


def test_no_set_is_called_safe_on_the_screening_of_it_and_the_certificate_of_a_smaller_one() -> None:
    """To hold more can bring a deadlock about; 35 trials of the screening exclude no rate of 5 %."""
    found, _ = find({"each:mask+forward+loss+backward", "each:mask+forward+backward"})
    called = {one.lock: (one.verdict, one.trials) for one in found.tested if not one.failures}
    assert called["each:mask+forward+backward"][0] == "safe"
    assert called["each:mask+forward+backward"][1] >= trials_for_safe()
    larger = called["each:mask+forward+loss+backward"]
    assert larger[0] == "undecided"
    assert larger[1] < trials_for_safe()


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize(
    ("safe", "answer", "regions", "hold"),
    [
        ({"none"}, "none", (), ""),
        (
            {"each:mask+forward+loss+backward", "each:mask+attention+loss+backward"},
            "each:mask+attention+loss+backward",
            ("mask", "attention", "loss", "backward"),
            BY_THEMSELVES,
        ),
        ({"each:mask+forward+loss+backward", "each:mask+loss"}, "each:mask+loss", ("mask", "loss"), BY_THEMSELVES),
        ({"span:mask..backward"}, "span:mask..backward", ("mask", "forward", "loss", "backward"), ONE_HOLD),
        (
            {"span:mask..backward", "span:forward..backward", "span:loss..backward"},
            "span:loss..backward",
            ("loss", "backward"),
            ONE_HOLD,
        ),
        ({"warmup_barrier"}, "warmup_barrier", ("mask", "forward", "loss", "backward"), UNTIL_WARM),
    ],
)
def test_the_least_way_of_holding(
    safe: set[str], answer: str, regions: tuple[str, ...], hold: str, rate: float
) -> None:
    if "span:mask..backward" in safe or "each:mask+loss" in safe:
        safe = safe | {"each:mask+forward+loss", "each:mask+loss+backward"} if "each:mask+loss" in safe else safe
    found, trials = find(safe, rate)
    assert (found.answer, found.regions, found.hold, found.verdict) == (answer, regions, hold, "safe")
    assert found.trials_total == len(trials)
    tested = {one.lock: one for one in found.tested}
    assert tested[answer].verdict == "safe"
    assert all(one.witness for one in found.tested if one.verdict == "unsafe")


def test_screenings_go_round_the_schedules_and_certification_is_under_the_harshest() -> None:
    """{mask} holds against all but `b`; {mask, loss} against all."""
    search = RegionSearch(portfolio=("a", "b"))
    trials = []
    while not isinstance(step := search.batch(1), RegionAnswer):
        assert isinstance(step, list)
        trials.append(step[0])
        enough = {"mask", "loss"} <= step[0].of.members
        search.record(step[0], failed=step[0].schedule == "b" and not enough)
    assert step.answer == "each:mask+loss"
    assert {trial.schedule for trial in trials if trial.purpose == "screen"} == {"", "a", "b"}
    assert {trial.schedule for trial in trials if trial.purpose == "certify"} == {"b"}
    (answer,) = [one for one in step.tested if one.lock == step.answer]
    assert (answer.schedule, answer.failures) == ("b", 0)
    assert answer.trials >= 59
    assert answer.schedules[""]["trials"] > 0, "counted apart"


def test_nothing_to_fix() -> None:
    assert find({"none"})[0].conclusion == NOTHING_TO_FIX


def test_no_set_is_enough() -> None:
    found, _ = find(set())
    assert (found.answer, found.verdict) == (None, "unsafe")
    assert [one.lock for one in found.tested] == [
        "none",
        "each:mask+forward+loss+backward",
        "span:mask..backward",
        "warmup_barrier",
    ]


def test_stopped_early_it_says_what_is_open() -> None:
    search = RegionSearch()
    for _ in range(5):
        step = search.batch(1)
        assert isinstance(step, list)
        search.record(step[0], failed=step[0].lock == "none")
    found = search.conclude("--max-trials 5 reached")
    assert (found.answer, found.verdict, found.stopped) == (None, "undecided", "--max-trials 5 reached")
    assert found.open == ("each:mask+forward+loss+backward: 0/4 failed (at most 53 %)",)


def test_what_does_not_run_is_no_evidence() -> None:
    search = RegionSearch()
    count = 0
    while not isinstance(step := search.batch(1), RegionAnswer):
        assert isinstance(step, list)
        count += 1
        search.record(step[0], None, reason="setup_error: no such model")
    assert count == TRIES
    assert step.verdict == "incomplete"
    assert "no such model" in step.conclusion
    assert step.tested == ()


def test_a_lock_that_is_no_set() -> None:
    with pytest.raises(ValueError, match="compile_gate"):
        RegionSearch().trial_of("compile_gate", 0, "", "screen")
