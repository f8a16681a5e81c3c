"""Counts, bounds and verdicts."""

from __future__ import annotations

import math

import pytest
from fake_runs import FX_ERROR, fx_row, row
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.intervals import failure_rate_lower, failure_rate_upper, trials_for_safe
from harness.analysis.summary import ScenarioSummary, summarise
from harness.core.scenario import Scenario

AGREED = (
    "id",
    "scenario",
    "trials",
    "failures",
    "outcomes",
    "fx_errors",
    "dense_calls",
    "compiles",
    "startup_s",
    "tokens_per_s",
    "verdict",
    "failure_rate_upper",
    "confidence",
)
"""The fields of a scenario in `run --json`, which others rely on."""


def one(*rows: dict[str, object]) -> ScenarioSummary:
    (summary,) = summarise(rows).scenarios
    return summary


def at_most(failures: int, trials: int, rate: float) -> float:
    """P(X ≤ failures), X binomial."""
    return sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(failures + 1))


@pytest.mark.parametrize(("failures", "trials"), [(0, 1), (0, 5), (0, 59), (1, 5), (3, 10), (9, 10), (30, 60)])
def test_the_bound_is_where_so_few_failures_have_five_percent(failures: int, trials: int) -> None:
    """Clopper and Pearson's definition, without scipy."""
    assert at_most(failures, trials, failure_rate_upper(failures, trials)) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("trials", [1, 5, 20, 60])
def test_the_stated_confidence_is_true(trials: int, rate: float) -> None:
    """Exact, not by chance: the probability that the bound covers the true rate is at least 95 %."""
    covered = sum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        for k in range(trials + 1)
        if failure_rate_upper(k, trials) >= rate
    )
    assert covered >= 0.95 - 1e-12


@pytest.mark.parametrize(("failures", "trials"), [(1, 5), (3, 10), (10, 10)])
def test_the_lower_bound_is_where_so_many_failures_have_five_percent(failures: int, trials: int) -> None:
    assert 1 - at_most(failures - 1, trials, failure_rate_lower(failures, trials)) == pytest.approx(0.05)


def test_known_bounds() -> None:
    assert failure_rate_lower(10, 10) == pytest.approx(0.741, abs=1e-3)
    assert failure_rate_lower(0, 5) == 0.0
    assert failure_rate_upper(0, 5) == pytest.approx(0.4507, abs=1e-4)
    assert failure_rate_upper(0, 0) == 1.0
    assert failure_rate_upper(4, 4) == 1.0
    assert trials_for_safe() == 59
    assert failure_rate_upper(0, 59) < 0.05 < failure_rate_upper(0, 58)


@pytest.mark.parametrize(("failures", "trials"), [(-1, 3), (4, 3)])
def test_impossible_counts_raise(failures: int, trials: int) -> None:
    with pytest.raises(ValueError, match="failures in"):
        failure_rate_upper(failures, trials)


@given(st.lists(st.sampled_from(["ok", "fx_error", "dense", "setup_error", "interrupted"]), min_size=1, max_size=80))
def test_counts_add_up(outcomes: list[str]) -> None:
    summary = one(*(row(None, number, outcome) for number, outcome in enumerate(outcomes)))
    assert summary.trials == len(outcomes) == sum(summary.outcomes.values())
    assert summary.failures == sum(outcome in ("fx_error", "dense") for outcome in outcomes)
    assert summary.conclusive == summary.failures + outcomes.count("ok")
    assert 0 < summary.failure_rate_upper <= 1


@pytest.mark.parametrize(
    ("good", "bad", "silent", "verdict"),
    [
        (5, 1, 0, "unsafe"),
        (500, 1, 0, "unsafe"),
        (59, 0, 0, "safe"),
        (58, 0, 0, "undecided"),
        (58, 0, 9, "undecided"),
        (1, 0, 0, "undecided"),
        (0, 0, 3, "incomplete"),
        (0, 1, 3, "unsafe"),
    ],
)
def test_verdicts(good: int, bad: int, silent: int, verdict: str) -> None:
    outcomes = ["ok"] * good + ["hang"] * bad + ["setup_error"] * silent
    assert one(*(row(None, number, outcome) for number, outcome in enumerate(outcomes))).verdict == verdict


def test_the_bound_rests_on_trials_that_say_something() -> None:
    summary = one(row(None, 0), row(None, 1, "out_of_memory"), row(None, 2, "interrupted"))
    assert (summary.trials, summary.conclusive) == (3, 1)
    assert summary.failure_rate_upper == failure_rate_upper(0, 1)


def test_a_trial_with_two_labels_is_one_failure_in_two_counts() -> None:
    summary = one(row(None, 0, "fx_error", "dense"), row(None, 1))
    assert (summary.trials, summary.failures) == (2, 1)
    assert summary.outcomes == {"fx_error": 1, "dense": 1, "ok": 1}


def test_a_failure_stands_beside_what_kept_the_trial_from_its_end() -> None:
    summary = one(row(None, 0, "out_of_memory", "dense"))
    assert (summary.failures, summary.conclusive, summary.verdict) == (1, 1, "unsafe")


def test_sums_and_medians() -> None:
    summary = one(
        row(None, 0, startup_s=1.0, tokens_per_s=100.0, fx_errors=0, dense_calls=2, compiles=3),
        row(None, 1, startup_s=9.0, tokens_per_s=300.0, compiles=4),
        row(None, 2, startup_s=None, tokens_per_s=None),
        row(None, 3, "fx_error", startup_s=2.0, tokens_per_s=9e9, fx_errors=5),
    )
    assert (summary.fx_errors, summary.dense_calls, summary.compiles) == (5, 2, 3 + 4 + 2 + 2)
    assert summary.startup_s == 2.0
    assert summary.tokens_per_s == 200.0, "of ok trials only"


def test_nothing_measured_is_none() -> None:
    summary = one(row(None, 0, "setup_error", startup_s=None, tokens_per_s=float("nan")))
    assert (summary.startup_s, summary.tokens_per_s) == (None, None)


def test_a_skipped_scenario_has_no_trial() -> None:
    summary = one(row(None, 0, "skipped", reason="needs CUDA"))
    assert (summary.trials, summary.verdict, summary.reason, summary.skipped) == (0, "incomplete", "needs CUDA", True)
    assert summary.failure_rate_upper == 1.0


def test_scenarios_are_never_pooled() -> None:
    cold, warm = Scenario(), Scenario(cache="warm")
    found = summarise([row(cold), row(warm), fx_row(warm, 1)], order=[warm.id, cold.id]).scenarios
    assert [(item.id, item.trials, item.failures) for item in found] == [(warm.id, 2, 1), (cold.id, 1, 0)]


OLD, NEW = "2.11.0", "2.13.0+cpu"


@pytest.mark.parametrize(
    ("old", "bad", "new", "verdict", "bound"),
    [
        (30, 0, 30, "undecided", failure_rate_upper(0, 30)),
        (59, 0, 58, "undecided", failure_rate_upper(0, 58)),
        (59, 0, 60, "safe", failure_rate_upper(0, 59)),
        (30, 30, 30, "unsafe", 1.0),
    ],
)
def test_trials_of_two_torch_never_make_one_verdict(old: int, bad: int, new: int, verdict: str, bound: float) -> None:
    rows = [row(None, n, "fx_error" if n < bad else "ok", torch=OLD) for n in range(old)]
    found = one(*rows, *(row(None, old + n, torch=NEW) for n in range(new)))
    assert (found.verdict, found.failure_rate_upper) == (verdict, bound)
    assert [(part.torch, part.failures, part.conclusive) for part in found.by_torch] == [(OLD, bad, old), (NEW, 0, new)]
    assert found.by_torch[0].verdict == one(*rows).verdict
    document = found.to_json()
    assert (document["verdict"], [part["torch"] for part in document["by_torch"]]) == (verdict, [OLD, NEW])
    assert (document["startup_s"], document["tokens_per_s"]) == (None, None), "nor one median"
    assert {part["startup_s"] for part in document["by_torch"]} <= {None, 1.5}
    assert document["by_torch"][1]["tokens_per_s"] == 1000.0


def test_a_torch_of_which_no_trial_says_anything_changes_no_verdict() -> None:
    rows = [row(None, n, torch=NEW) for n in range(59)]
    found = one(row(None, 90, "setup_error", torch=OLD), row(None, 91, "skipped", torch=""), *rows)
    assert (found.verdict, found.torch, found.by_torch, "by_torch" in found.to_json()) == ("safe", NEW, (), False)
    silent = one(row(None, 0, "setup_error", torch=OLD), row(None, 1, "setup_error", torch=NEW))
    assert (silent.verdict, silent.torch, silent.by_torch) == ("incomplete", "", ())


def test_json_has_the_agreed_fields() -> None:
    document = one(row()).to_json()
    assert tuple(document) == AGREED
    assert document["scenario"] == Scenario().to_dict()
    assert document["confidence"] == 0.95


def test_errors_are_grouped_and_the_witness_names_who_collided() -> None:
    blind = {**FX_ERROR, "tracers": [], "thread": "blind"}
    other = {**FX_ERROR, "fingerprint": "other", "consequence": True}
    rows = [
        row(None, 0, "fx_error", errors=[blind, blind, other]),
        row(Scenario(lock="first_step"), 0, "fx_error", errors=[FX_ERROR]),
    ]
    first, second = summarise(rows).errors
    assert (first.count, first.trials, first.only_consequences) == (3, 2, False)
    assert first.witness_trial == "lock=first_step--r0"
    assert first.collision[0]["worker"] == "drafter-0"
    assert (second.fingerprint, second.only_consequences) == ("other", True)


def test_probes_that_could_not_look_are_said() -> None:
    probes = {"dense": "unavailable: no such hook", "engine": "ok", "flag_check": "off"}
    summary = summarise([row(None, 0, probes=probes), row(None, 1, probes=probes)])
    assert summary.unavailable == {"dense": {"no such hook": 2}}
    assert summary.scenarios[0].unavailable == ("dense",)
