"""`--update-expect`: what a run has shown becomes what the matrix expects, and nothing else of the file changes."""

from __future__ import annotations

import difflib
import random
import tomllib
from collections.abc import Mapping

import pytest
from fake_runs import row

from harness.analysis.summary import ScenarioSummary, summarise
from harness.control.update_expect import check_editable, update_expectations
from harness.core.errors import MatrixError
from harness.core.expectations import judge
from harness.core.matrix import Matrix, parse_matrix
from harness.core.outcome import FAILURES
from harness.core.scenario import Scenario

HEAD = """\
# Why this file is there.
schema = 1

[defaults]
repeats = 5   # enough

[axes]
lock = ["none", "first_step"]
checkpoint = ["none", "reentrant"]
"""
TORCH = "2.13.0+cpu"

Seen = Mapping[tuple[str, str], list[str]]
"""(lock, checkpoint) → the label of each trial; ok for all others."""


def summaries(matrix: Matrix, seen: Seen, trials: int = 5) -> list[ScenarioSummary]:
    rows = []
    for scenario in matrix.scenarios:
        labels = seen.get((scenario.lock, scenario.checkpoint), ["ok"] * trials)
        rows += [row(scenario, repeat, *label.split()) for repeat, label in enumerate(labels)]
    return list(summarise(rows).scenarios)


def updated(text: str, seen: Seen, torch: str = TORCH, repeats: int = 5) -> str:
    matrix = parse_matrix(text, file="m.toml")
    return update_expectations(matrix, summaries(matrix, seen), torch, repeats)


def change(before: str, after: str) -> list[str]:
    """The lines that a diff would show, with their signs."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def test_nothing_changes_where_every_expectation_holds() -> None:
    text = HEAD + '[[expect]]\nwhere = "lock=none"\nmay = ["fx_error"]\n'
    assert updated(text, {}) is not None
    assert updated(text, {("none", "none"): ["fx_error"] * 5}) == text
    assert updated(HEAD, {}) == HEAD


def test_a_failure_that_always_comes_must_come() -> None:
    after = updated(HEAD, {("none", "none"): ["fx_error"] * 5, ("none", "reentrant"): ["fx_error"] * 5})
    assert change(HEAD, after) == [
        "+",
        "+[[expect]]",
        '+where = "lock=none"',
        '+torch = "==2.13.*"',
        '+must = ["fx_error"]',
        '+reason = "seen: fx_error in 10 of 10 trials on torch 2.13.0+cpu"',
    ]


def test_a_failure_that_comes_now_and_then_may_come() -> None:
    after = updated(HEAD, {("none", "none"): ["fx_error", "ok", "ok", "ok", "fx_error dense"]})
    assert change(HEAD, after) == [
        "+",
        "+[[expect]]",
        '+where = "lock=none and checkpoint=none"',
        '+torch = "==2.13.*"',
        '+may = ["fx_error", "dense"]',
        '+reason = "seen: fx_error in 2, dense in 1 of 5 trials on torch 2.13.0+cpu"',
    ]


@pytest.mark.parametrize(("trials", "verb"), [(4, "may"), (5, "must")])
def test_few_trials_make_no_promise(trials: int, verb: str) -> None:
    """Four of four say that the failure comes at least 47 % of the time: four more could well be without it."""
    matrix = parse_matrix(HEAD, file="m.toml")
    seen = {("none", "none"): ["fx_error"] * trials}
    after = update_expectations(matrix, summaries(matrix, seen, trials), TORCH, trials)
    (table,) = tomllib.loads(after)["expect"]
    assert verb in table


def test_a_broken_only_keeps_what_it_says_of_others() -> None:
    first = '\n# First step is enough.\n[[expect]]\nwhere = "lock=first_step"  # all modes\n'
    second = '\n# After it.\n[[expect]]\nwhere = "lock=none"\nmay = ["fx_error"]\n'
    after = updated(
        HEAD + first + 'only = ["ok"]\n' + second, {("first_step", "reentrant"): ["ok", "dense", "ok", "ok", "ok"]}
    )
    narrowed = (
        '\n[[expect]]\nwhere = "lock=first_step and not checkpoint=reentrant"\ntorch = "==2.13.*"\nonly = ["ok"]\n'
    )
    seen = (
        '\n[[expect]]\nwhere = "lock=first_step and checkpoint=reentrant"\ntorch = "==2.13.*"\nmay = ["dense"]\n'
        'reason = "seen: dense in 1 of 5 trials on torch 2.13.0+cpu"\n'
    )
    assert after == HEAD + first + 'torch = "!=2.13.*"\nonly = ["ok"]\n' + narrowed + second + seen


def test_a_must_that_no_longer_happens_is_for_other_versions() -> None:
    text = HEAD + '[[expect]]\nwhere = "lock=none"\ntorch = "<2.14"\nmust = ["fx_error"]\n'
    assert change(text, updated(text, {})) == ['-torch = "<2.14"', '+torch = "<2.14,!=2.13.*"']


def test_an_expectation_of_this_version_alone_is_narrowed_in_place() -> None:
    text = HEAD + '[[expect]]\nwhere = "lock=*"\ntorch = "==2.13.*"\nonly = ["ok"]\nreason = "why"\n'
    after = updated(text, {("none", "none"): ["hang"] * 5, ("none", "reentrant"): ["hang"] * 5})
    assert change(text, after)[:2] == ['-where = "lock=*"', '+where = "lock=* and not lock=none"']
    assert tomllib.loads(after)["expect"][0]["reason"] == "why"


def test_an_expectation_of_this_version_that_nothing_keeps_goes() -> None:
    text = HEAD + '\n[[expect]]\nwhere = "lock=none"\ntorch = "==2.13.0"\nmust = ["hang"]\n\n[pipeline]\nheads = 2\n'
    after = updated(text, {})
    assert "expect" not in tomllib.loads(after)
    assert change(text, after) == [
        "-[[expect]]",
        '-where = "lock=none"',
        '-torch = "==2.13.0"',
        '-must = ["hang"]',
        "-",
    ]


def test_scenarios_that_were_not_run_in_full_are_left_alone() -> None:
    seen = {
        ("none", "none"): ["fx_error", "interrupted", "ok", "ok", "ok"],
        ("none", "reentrant"): ["fx_error", "out_of_memory", "ok", "ok", "ok"],
        ("first_step", "none"): ["fx_error"],
        ("first_step", "reentrant"): ["skipped"],
    }
    assert updated(HEAD, seen) == HEAD


def test_line_ends_and_a_missing_last_one_are_kept() -> None:
    seen = {("none", "none"): ["crash"] * 5}
    after = updated(HEAD.replace("\n", "\r\n"), seen)
    assert after.count("\n") == after.count("\r\n")
    assert after.startswith(HEAD.replace("\n", "\r\n"))
    assert updated(HEAD.rstrip("\n"), seen) == updated(HEAD, seen)


def test_tables_in_another_form_are_refused() -> None:
    text = 'schema = 1\nexpect = [{ where = "lock=none", must = ["hang"] }]\n[axes]\nlock = ["none"]\n'
    with pytest.raises(MatrixError, match=r"m.toml: cannot edit.*\[\[expect\]\]"):
        updated(text, {})


OLD = [
    '[[expect]]\nwhere = "lock=none"\nmay = ["fx_error", "hang"]\n',
    '[[expect]]\n# only\nwhere = "lock=first_step and checkpoint=none"\nonly = ["ok"]\n',
    '[[expect]]\nwhere = "not lock=none"\ntorch = "==2.13.*"\nmust = [\n  "dense",\n]\n',
    '[[expect]]\nwhere = "lock=*"\ntorch = ">=2.12,<2.14"\nmay = ["numerics"]\nreason = "so"\n',
    '[[expect]]\nonly = ["ok", "crash"]\nwhere = "checkpoint=reentrant"\n',
]


@pytest.mark.parametrize("seed", range(150))
def test_whatever_was_seen_holds_afterwards(seed: int) -> None:
    """And a second update has nothing to do, and what the file says of other versions is what it said before."""
    chance = random.Random(seed)
    text = HEAD + "\n".join(chance.sample(OLD, chance.randint(0, len(OLD))))
    matrix = parse_matrix(text, file="m.toml")
    labels = ["ok", *chance.sample(FAILURES, 3)]
    seen = {
        (scenario.lock, scenario.checkpoint): [" ".join(chance.sample(labels, chance.randint(1, 2))) for _ in range(5)]
        for scenario in matrix.scenarios
        if chance.random() < 0.7
    }
    found = summaries(matrix, seen)
    after = update_expectations(matrix, found, TORCH, 5)
    new = parse_matrix(after, file="m.toml")
    assert new.scenarios == matrix.scenarios
    assert kinds(new, found, TORCH) <= {"met"}
    assert update_expectations(new, found, TORCH, 5) == after
    for torch in ("2.11.0", "2.14.1"):
        assert judged(new, found, torch) == judged(matrix, found, torch)


def kinds(matrix: Matrix, found: list[ScenarioSummary], torch: str) -> set[str]:
    return {kind for kind, _ in judged(matrix, found, torch)}


def judged(matrix: Matrix, found: list[ScenarioSummary], torch: str) -> set[tuple[str, str]]:
    """Kinds of judgement and the scenarios that have them."""
    return {
        (judgement.kind, item.id)
        for item in found
        for judgement in judge(Scenario.from_dict(item.scenario), item.labels, torch, matrix.expectations)
    }


@pytest.mark.parametrize("number", range(len(OLD) + 1))
def test_tables_that_can_be_edited_are_known_beforehand(number: int) -> None:
    for end in ("\n", "\r\n"):
        text = HEAD + "\n".join(OLD[:number]) + "\n[pipeline]\nheads = 2\n"
        check_editable(parse_matrix(text.replace("\n", end), file="m.toml"))


@pytest.mark.parametrize(
    "text",
    [
        'schema = 1\nexpect = [{ where = "lock=none", only = ["ok"] }]\n[axes]\nlock = ["none"]\n',
        HEAD + '[[expect]]\nwhere = "lock=none"\n"t\\u006frch" = "==2.13.*"\nonly = ["ok"]\n',
    ],
)
def test_tables_that_cannot_be_edited_are_known_beforehand(text: str) -> None:
    """Whatever a run would show: these expectations hold or not, that is seen only then."""
    with pytest.raises(MatrixError, match=r"m.toml: cannot edit its expectations"):
        check_editable(parse_matrix(text, file="m.toml"))
