"""Comparing two runs: what is told, what is not, what is not fair, and how often it is wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from scipy.stats import fisher_exact

from harness.analysis.compare import Counts
from harness.analysis.fairness import Fairness, alone, fairness
from harness.analysis.holm import holm, least_p_of_rates, least_p_of_trials, least_p_of_values, trials_to_tell
from harness.analysis.versus import RunComparison, Side, compare_runs
from harness.core.scenario import Scenario
from harness.report.comparison import notes, why

FAIR = Fairness((), (), (), ())
AXES = Scenario().to_dict()
ENV: dict[str, Any] = {
    "torch": "2.11.0",
    "python": "3.11.7",
    "cpu": "AMD EPYC",
    "cores_usable": 2,
    "gpus": [],
    "variables": {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    "options": {"jobs": 1, "executor": "local"},
}
SOFTWARE = (["2.11.0"], ["2.13.0"])


def side(failures: int, trials: int, startup: Sequence[float] = (), rates: Sequence[float] = (), **axes: Any) -> Side:
    return Side({**AXES, **axes}, Counts(failures, trials), startup, rates)


def one(before: Side, after: Side, fair: Fairness = FAIR) -> RunComparison:
    return compare_runs({"s": before}, {"s": after}, fair)


def values(dice: random.Random, count: int, around: float) -> list[float]:
    return [around * dice.lognormvariate(0, 0.1) for _ in range(count)]


def test_holm_against_its_definition() -> None:
    # Worked by hand: sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, each no less than the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize(("a", "b"), [(5, 5), (3, 8), (20, 1)])
def test_the_least_p_of_rates_is_that_of_the_most_extreme_table(a: int, b: int) -> None:
    for failures in range(a + b + 1):
        tables = [
            [[k, a - k], [failures - k, b - failures + k]] for k in range(max(0, failures - b), min(a, failures) + 1)
        ]
        least = min(fisher_exact(table).pvalue for table in tables)
        assert least_p_of_rates(Counts(failures, a), Counts(0, b)) == pytest.approx(least)


def test_the_least_p_of_trials_and_of_values() -> None:
    assert least_p_of_trials(5, 5) == pytest.approx(fisher_exact([[5, 0], [0, 5]]).pvalue)
    assert least_p_of_values(5, 5) == pytest.approx(2 / 252)
    assert least_p_of_values(0, 5) == 1.0
    assert trials_to_tell(1, 0.05) == 4  # 2 / C(8, 4) = 0.029, and 2 / C(6, 3) = 0.1
    assert trials_to_tell(100, 0.05) == 8


def test_more_failures_are_worse_and_fewer_better() -> None:
    worse = one(side(0, 20), side(12, 20))
    assert (worse.scenarios[0].word, worse.exit_code) == ("worse", 1)
    [test] = worse.scenarios[0].deciding
    assert (test.measure, test.found.word) == ("failures", "more failures")
    better = one(side(12, 20), side(0, 20))
    assert (better.scenarios[0].word, better.exit_code) == ("better", 0)


def test_slower_is_worse_by_either_measure() -> None:
    dice = random.Random(1)
    slow = one(side(0, 9, rates=values(dice, 9, 1000)), side(0, 9, rates=values(dice, 9, 500)))
    assert [test.found.word for test in slow.scenarios[0].deciding] == ["slower"]
    late = one(side(0, 9, values(dice, 9, 2)), side(0, 9, values(dice, 9, 4)))
    assert (late.scenarios[0].word, late.exit_code) == ("worse", 1)
    early = one(side(0, 9, values(dice, 9, 4)), side(0, 9, values(dice, 9, 2)))
    assert early.scenarios[0].word == "better"


def test_faster_with_more_failures_is_both_and_counts_as_worse() -> None:
    dice = random.Random(1)
    found = one(side(0, 20, rates=values(dice, 20, 500)), side(15, 20, rates=values(dice, 9, 1000)))
    assert (found.scenarios[0].word, found.exit_code) == ("better and worse", 1)


def test_many_scenarios_are_corrected_for() -> None:
    """p = 0.033 tells alone, and not among twenty."""
    before, after = side(0, 9), side(5, 9)
    assert one(before, after).scenarios[0].word == "worse"
    many = compare_runs({str(n): before for n in range(20)}, {str(n): after for n in range(20)}, FAIR)
    assert many.family == 20
    assert not many.having("worse")
    assert many.scenarios[0].tests[0].adjusted == pytest.approx(20 * many.scenarios[0].tests[0].found.p)


def test_a_test_that_can_tell_nothing_costs_the_others_nothing() -> None:
    before = {"real": side(0, 20), **{str(n): side(0, 20) for n in range(500)}}
    after = {"real": side(9, 20), **{str(n): side(0, 20) for n in range(500)}}
    found = compare_runs(before, after, FAIR)
    assert found.family == 1
    assert [item.scenario_id for item in found.having("worse")] == ["real"]


def test_too_few_trials_are_said() -> None:
    found = one(side(0, 2), side(2, 2))
    assert (found.scenarios[0].word, found.too_few, found.needed) == ("no change that can be told", 1, 4)


@pytest.mark.parametrize("fair", [FAIR, Fairness((), ("other --jobs: 1 → 2",), (), ())])
@pytest.mark.parametrize("scenarios", [1, 4, 30])
@pytest.mark.parametrize("now", [1, 2, 3])
def test_with_as_many_trials_as_are_asked_for_the_clearest_difference_is_told(
    now: int, scenarios: int, fair: Fairness
) -> None:
    """Also where every other test comes to count by those trials, and of the first none gave a throughput after."""
    dice = random.Random(11)

    def compared(trials: int, failures: int, measured: bool) -> RunComparison:
        old, new = {}, {}
        for name in map(str, range(scenarios)):
            mixed = trials // 2 if name != "0" else 0
            old[name] = side(mixed, trials, values(dice, trials, 2), values(dice, trials, 500))
            rates = values(dice, trials, 500) if measured else ()
            new[name] = side(failures if name == "0" else mixed, trials, values(dice, trials, 2), rates)
        return compare_runs(old, new, fair)

    before = compared(now, now, measured=False)
    assert before.too_few == (scenarios if fair.speed else 2 * scenarios)
    after = compared(before.needed, before.needed, measured=True)
    assert after.scenarios[0].tests[0].told, f"{before.needed} were asked for"
    assert fair.speed or all(test.could_tell for test in after.scenarios[0].tests)


def test_ranks_and_medians_at_odds_are_said_and_nothing_told() -> None:
    before = [5 + n / 100 for n in range(9)] + [10 + n / 100 for n in range(11)]
    after = [9 + n / 100 for n in range(11)] + [20 + n / 100 for n in range(9)]
    found = one(side(0, 20, startup=before), side(0, 20, startup=after))
    [_, startup] = found.scenarios[0].tests
    assert (found.exit_code, found.scenarios[0].word) == (0, "no change that can be told")
    assert (startup.told, startup.found.at_odds) == (False, True)
    [note] = notes(found)
    assert note == "the ranks differ, and not in the direction that the medians show, so no change is told: start-up of default"
    assert "not in the direction that the medians show" in why(startup)
    many = compare_runs(
        {str(n): side(0, 20, startup=before) for n in range(9)},
        {str(n): side(0, 20, startup=after) for n in range(9)},
        FAIR,
    )
    assert not any(test.found.at_odds for item in many.scenarios for test in item.tests), "after the correction it is none"


def test_nothing_in_common_and_nothing_that_tells() -> None:
    assert compare_runs({"a": side(0, 5)}, {"b": side(0, 5)}, FAIR).exit_code == 3
    silent = one(side(0, 0), side(0, 5))
    assert (silent.scenarios[0].word, silent.exit_code) == ("not compared", 3)


def test_other_pipelines_are_never_compared() -> None:
    fair = fairness(ENV, ENV, ({"hidden_size": 64}, {"hidden_size": 128}), SOFTWARE)
    assert fair.refused == ("other pipeline settings: hidden_size 64 → 128",)
    found = one(side(0, 20), side(20, 20), fair)
    assert (found.scenarios[0].word, found.exit_code, found.scenarios[0].tests) == ("not compared", 3, ())


def test_mixed_software_within_a_run_is_never_compared() -> None:
    fair = fairness(ENV, ENV, ({}, {}), (["2.11.0", "2.13.0"], ["2.13.0"]))
    assert fair.refused == ("the trials before ran under different torch: 2.11.0, 2.13.0",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu": "Xeon"}, "other processor: AMD EPYC → Xeon"),
        ({"cores_usable": 64}, "other usable cores: 2 → 64"),
        ({"variables": {"OMP_NUM_THREADS": "8"}}, "other OMP_NUM_THREADS: 1 → 8"),
        ({"options": {"jobs": 4, "executor": "local"}}, "other --jobs: 1 → 4"),
    ],
)
def test_on_another_machine_failures_are_compared_and_speed_is_not(change: Mapping[str, Any], words: str) -> None:
    fair = fairness(ENV, {**ENV, **change}, ({}, {}), SOFTWARE)
    assert fair.speed == (words,)
    dice = random.Random(1)
    found = one(side(0, 20, rates=values(dice, 20, 1000)), side(12, 20, rates=values(dice, 20, 100)), fair)
    failures, rate = found.scenarios[0].tests
    assert failures.told
    assert not rate.told
    assert rate.unfair == words
    assert found.family == 1, "what is not counted is not corrected for"


@pytest.mark.parametrize("side_of", ["before", "after"])
def test_speed_of_a_run_whose_trials_had_several_jobs_is_not_compared(side_of: str) -> None:
    mixed = {**ENV, "options": {**ENV["options"], "varied": {"jobs": [2, 1], "executor": ["local"]}}}
    old, new = (mixed, ENV) if side_of == "before" else (ENV, mixed)
    fair = fairness(old, new, ({}, {}), SOFTWARE)
    assert fair.speed == (f"the trials {side_of} ran with different --jobs: 2, 1",)
    odd = {**ENV, "options": {**ENV["options"], "varied": {"jobs": 5}}}
    assert fairness(odd, ENV, ({}, {}), SOFTWARE).speed == ()


def test_other_gpus_matter_to_scenarios_on_them_only() -> None:
    fair = fairness(ENV, {**ENV, "gpus": [{"name": "H200"}]}, ({}, {}), SOFTWARE)
    assert (fair.speed, fair.cuda) == ((), ("other GPUs: none → 1 × H200",))
    assert fair.speed_of("cpu") == ()
    assert fair.speed_of("cuda:0+cuda:1") == fair.cuda


def test_another_torch_is_the_question() -> None:
    fair = fairness(ENV, {**ENV, "torch": "2.13.0"}, ({}, {}), SOFTWARE)
    assert (fair.refused, fair.speed, fair.asked) == ((), (), ("torch: 2.11.0 → 2.13.0",))


@pytest.mark.parametrize(("axis", "value"), [("cache", "warm"), ("schedule", "pct:1:2"), ("devices", "cuda:0")])
def test_cold_and_warm_other_schedules_and_other_devices_are_never_pooled(axis: str, value: str) -> None:
    cold, warm = Scenario(), Scenario(**{axis: value})  # type: ignore[arg-type]
    found = compare_runs({cold.id: side(0, 20)}, {warm.id: side(20, 20, **{axis: value})}, FAIR)
    assert (found.scenarios, found.exit_code) == ((), 3)
    [only] = found.only_before
    assert (only.scenario_id, only.near) == (cold.id, f"{axis}={value}")


def test_a_scenario_of_one_run_that_is_near_to_none() -> None:
    found = alone({"a": AXES}, {"b": {**AXES, "lock": "every_step"}}, set())
    assert [(one.scenario_id, one.near) for one in found] == [("a", "")]


def test_a_difference_is_told_in_at_most_five_percent_where_there_is_none() -> None:
    """Calibration: 500 pairs of runs without any difference, 4 scenarios each, rates from rare to common.

    If a false "better" or "worse" came in exactly 5 % of pairs, more than 40 of 500 would have a chance of 0.2 %. The tests
    are discrete, so far fewer are seen.
    """
    dice = random.Random(20_260_101)
    false = 0
    for _ in range(500):
        runs: list[dict[str, Side]] = [{}, {}]
        for number, rate in enumerate((0.05, 0.3, 0.5, 0.9)):
            trials = dice.randint(5, 30)
            for run in runs:
                failures = sum(dice.random() < rate for _ in range(trials))
                timed = min(trials, 12) if number == 0 else 0  # one of the scenarios, for the rank test takes its time
                run[str(number)] = side(failures, trials, rates=values(dice, timed, 1000))
        false += bool(compare_runs(runs[0], runs[1], FAIR).having("better", "worse", "better and worse"))
    assert false <= 40, f"{false} of 500"
    assert false >= 2, "a comparison that never tells anything is calibrated too"


def test_a_real_difference_is_told() -> None:
    """Power: 20 trials with a rate of 5 % against 60 %: Fisher's test alone tells nearly all."""
    dice = random.Random(7)
    told = 0
    for _ in range(50):
        old, new = (sum(dice.random() < rate for _ in range(20)) for rate in (0.05, 0.6))
        told += one(side(old, 20), side(new, 20)).exit_code
    assert told >= 42
