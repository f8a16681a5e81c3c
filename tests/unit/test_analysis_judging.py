"""How scenarios stand to what the matrix expects: each kind, and the bound that goes with an improvement."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fake_runs import row

from harness.analysis.intervals import failure_rate_upper
from harness.analysis.judging import Standing, judge_run, standings, untried
from harness.analysis.summary import summarise
from harness.core.matrix import Matrix, parse_matrix
from harness.core.scenario import Scenario

HEAD = 'schema = 1\n[axes]\nlock = ["none", "every_step"]\n'
NONE, EVERY = Scenario(), Scenario(lock="every_step")
TORCH = "2.11.0"


def matrix(*tables: str) -> Matrix:
    return parse_matrix(HEAD + "".join(f"[[expect]]\n{table}\n" for table in tables), file="m")


def stand(
    expects: Matrix, trials: Sequence[Sequence[str]], repeats: int = 0, scenario: Scenario = NONE
) -> list[Standing]:
    summary = summarise(row(scenario, number, *labels) for number, labels in enumerate(trials))
    return standings(expects, summary, {}, TORCH, repeats or len(trials))


OK, FX = ("ok",), ("fx_error",)


@pytest.mark.parametrize(
    ("expect", "trials", "kind", "words"),
    [
        ('where = "lock=none"\nonly = ["ok"]', [OK, OK], "met", "held in 2 trials"),
        ('where = "lock=none"\nonly = ["ok"]', [OK, FX], "broken", "fx_error in 1 of 2 trials"),
        ('where = "lock=none"\nmust = ["fx_error"]', [FX, FX], "met", "held in 2 trials"),
        ('where = "lock=none"\nmust = ["fx_error"]', [FX, OK, OK], "flaky", "fx_error in 1 of 3 trials (0.84 – 91 %)"),
        ('where = "lock=none"\nmust = ["fx_error"]', [OK] * 5, "improved", "no fx_error in 5 trials"),
        ('where = "lock=none"\nmay = ["fx_error", "error"]', [OK] * 14, "improved", "no fx_error, no error in 14 trials"),
        ('where = "lock=none"\nmay = ["fx_error", "error"]', [OK] * 13, "met", "held in 13 trials"),  # ≤ 20.6 %
        ('where = "lock=none"\nmay = ["fx_error", "error"]', [FX] * 2, "met", "held in 2 trials"),
        ('where = "lock=none"\nonly = ["ok", "fx_error"]', [OK, FX], "met", "held in 2 trials"),
        ('where = "lock=none"\nmay = ["fx_error"]', [("setup_error",)], "missing", "no trial says anything"),
        ('where = "lock=none"\nmay = ["fx_error"]', [("skipped",)], "missing", "skipped"),
    ],
)
def test_kinds(expect: str, trials: list[tuple[str, ...]], kind: str, words: str) -> None:
    [found] = stand(matrix(expect), trials)
    assert (found.kind, found.scenario_id) == (kind, NONE.id)
    assert words in found.text


def test_trials_under_two_torch_are_held_to_what_is_expected_of_each() -> None:
    """What the older may do the newer must not, whichever ran first."""
    expects = matrix(
        'where = "lock=none"\ntorch = "<2.12"\nmust = ["fx_error"]', 'where = "lock=none"\ntorch = ">=2.12"\nonly = ["ok"]'
    )
    rows = [row(NONE, 0, "fx_error", torch="2.11.0+cpu")]
    rows += [row(NONE, 1, "fx_error", torch="2.13.0"), row(NONE, 2, torch="2.13.0")]
    for summary in (summarise(rows), summarise(reversed(rows))):
        judged = judge_run(expects, summary, TORCH, 1)[NONE.id]
        assert {(one.kind, one.text.partition(": ")[0]) for one in judged} == {
            ("met", "under torch 2.11.0+cpu"),
            ("broken", "under torch 2.13.0"),
        }
        broken, met = standings(expects, summary, {}, TORCH, 1)
        assert (broken.kind, met.kind) == ("broken", "met")
        assert broken.text.startswith("under torch 2.13.0: ")
        assert "fx_error in 1 of 2 trials" in broken.text


def test_a_failure_under_two_torch_is_judged_also_where_its_own_is_not_known() -> None:
    rows = [row(NONE, 0, torch="2.11.0"), row(NONE, 1, torch="2.13.0"), row(NONE, 2, "crash", torch="")]
    summary = summarise(rows)
    text = "under a torch that is not known: crash in 1 of 1 trial: nothing permits it"
    assert [(one.kind, one.text) for one in judge_run(matrix(), summary, TORCH, 1)[NONE.id]] == [("unexpected", text)]
    assert [(one.kind, one.text) for one in standings(matrix(), summary, {}, TORCH, 1)] == [("unexpected", text)]
    assert summary.scenarios[0].verdict == "unsafe"
    [alone] = summarise(rows[1:]).scenarios
    assert (alone.by_torch, alone.torch, alone.failures, alone.conclusive) == ((), "2.13.0", 1, 2)


def test_what_nothing_permits_is_unexpected() -> None:
    found = stand(matrix('where = "lock=none"\nmay = ["fx_error"]'), [FX, ("dense",)])
    assert [(one.kind, one.text) for one in found] == [
        ("unexpected", "dense in 1 of 2 trials: nothing permits it"),
        ("flaky", "may fx_error where lock=none: fx_error in 1 of 2 trials (1.3 – 99 %)"),
    ]


def test_an_improvement_says_which_rate_it_excludes_and_no_more() -> None:
    [found] = stand(matrix('where = "lock=none"\nmust = ["fx_error"]'), [OK] * 59)
    bound = 100 * failure_rate_upper(0, 59)
    assert f"excludes a rate above {bound:.3g} % at 95 % confidence" in found.text
    assert f"{bound:.3g}" == "4.95"


def test_what_must_fail_may_still_do_so_in_trials_to_come() -> None:
    [found] = stand(matrix('where = "lock=none"\nmust = ["fx_error"]'), [OK] * 3, repeats=5)
    assert found.kind == "missing"
    assert "no fx_error in 3 trials so far, and more are to run" in found.text


def test_a_scenario_without_a_trial_is_missing() -> None:
    expects = matrix('where = "lock=*"\nonly = ["ok"]')
    found = standings(expects, summarise([row(NONE)]), {EVERY.id: EVERY}, TORCH, 1)
    assert [(one.kind, one.scenario_id) for one in found] == [("missing", EVERY.id), ("met", NONE.id)]


def test_each_expectation_by_itself_in_the_order_of_the_kinds() -> None:
    expects = matrix('where = "lock=*"\nonly = ["ok", "error"]', 'where = "lock=none"\nmust = ["error"]')
    found = stand(expects, [FX, OK])
    assert [one.kind for one in found] == ["broken", "improved"]


def test_untried() -> None:
    expects = matrix('where = "lock=none"\ntorch = ">=3"\nonly = ["ok"]', 'where = "lock=none"\nonly = ["ok"]')
    assert [str(one) for one in untried(expects, TORCH)] == ["only ok where lock=none, torch >=3"]


def test_scenarios_that_the_matrix_does_not_name_are_not_judged() -> None:
    expects = matrix('where = "lock=*"\nonly = ["ok"]')
    summary = summarise([row(Scenario(lock="per_call"), 0, "fx_error"), row(NONE)])
    assert set(judge_run(expects, summary, TORCH, 1)) == {NONE.id}
    assert {one.scenario_id for one in standings(expects, summary, {}, TORCH, 1)} == {NONE.id}
