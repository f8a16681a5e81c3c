"""Expectations, and the judgement of a scenario's trials."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import MatrixError
from harness.core.expectations import Expectation, judge, read_expectation
from harness.core.outcome import FAILURES, INCOMPLETE, LABELS, OK, SKIPPED
from harness.core.scenario import Scenario

NONE = Scenario()
TORCH = "2.11.0+cu130"


def expect(**table: Any) -> Expectation:
    return read_expectation({"where": "lock=none", **table}, "m.toml: [[expect]] number 1")


def kinds(labels: list[list[str]], *expectations: Expectation, torch: str = TORCH) -> list[str]:
    return [judgement.kind for judgement in judge(NONE, labels, torch, expectations)]


def test_it_applies_to_its_scenarios_and_its_torch() -> None:
    expectation = expect(torch="<2.12", may=["fx_error"])
    assert expectation.applies(NONE, "2.11.0+cu130")
    assert not expectation.applies(NONE, "2.12.0")
    assert not expectation.applies(Scenario(lock="first_step"), "2.11.0")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([["ok"], ["fx_error"]], ["met"]),
        ([["ok"], ["ok"]], ["broken"]),
        ([["fx_error", "dense"]], ["met", "unexpected"]),
        ([["out_of_memory"], ["fx_error"]], ["met"]),
        ([["out_of_memory"], ["ok"]], ["broken"]),
        ([["out_of_memory"]], []),
        ([], []),
    ],
)
def test_must_wants_each_label_once(labels: list[list[str]], expected: list[str]) -> None:
    assert kinds(labels, expect(must=["fx_error"])) == expected


def test_must_wants_every_one_of_its_labels() -> None:
    expectation = expect(must=["fx_error", "dense"])
    assert kinds([["fx_error"], ["dense"]], expectation) == ["met"]
    assert kinds([["fx_error"], ["ok"]], expectation) == ["broken"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([["ok"]], ["met"]),
        ([["fx_error"]], ["met"]),
        ([["hang"]], ["met", "unexpected"]),
        ([["interrupted"]], []),
    ],
)
def test_may_permits(labels: list[list[str]], expected: list[str]) -> None:
    assert kinds(labels, expect(may=["fx_error"])) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([["ok"], ["ok"]], ["met"]),
        ([["ok"], ["fx_error"]], ["broken"]),  # and not unexpected as well
        ([["ok"], ["out_of_memory"]], ["met"]),
        ([["skipped"]], []),
    ],
)
def test_only_permits_nothing_else(labels: list[list[str]], expected: list[str]) -> None:
    assert kinds(labels, expect(only=["ok"])) == expected


def test_only_a_failure_is_broken_by_a_good_trial() -> None:
    assert kinds([["hang"], ["ok"]], expect(only=["hang"])) == ["broken"]


def test_an_only_is_not_softened_by_another_expectation() -> None:
    assert kinds([["fx_error"]], expect(only=["ok"]), expect(may=["fx_error"])) == ["broken", "met"]


def test_a_failure_that_nothing_expects_is_unexpected() -> None:
    assert kinds([["ok"], ["dense", "fx_error"]]) == ["unexpected", "unexpected"]
    assert kinds([["fx_error"]], expect(torch=">=2.12", may=["fx_error"])) == ["unexpected"]
    assert kinds([["ok"]]) == []


def test_the_text_says_what_how_often_and_why() -> None:
    expectation = expect(only=["ok"], torch=">=2.9", reason="2.14 has a flag per thread")
    (judgement,) = judge(NONE, [["ok"], ["fx_error"], ["fx_error"]], TORCH, [expectation])
    assert judgement.text == (
        "only ok where lock=none, torch >=2.9: fx_error in 2 of 3 trials (2.14 has a flag per thread)"
    )


def test_a_label_outside_the_list_is_a_bug() -> None:
    with pytest.raises(ValueError, match="fx_eror"):
        judge(NONE, [["fx_eror"]], TORCH, [])


trials = st.lists(st.lists(st.sampled_from(LABELS), max_size=3), max_size=4)


@given(trials, st.sampled_from(["must", "may", "only"]), st.sampled_from([*FAILURES, OK]))
def test_labels_that_say_nothing_change_nothing(labels: list[list[str]], verb: str, label: str) -> None:
    expectation = expect(**{verb: [label]})
    quiet = [[said for said in trial if said not in (*INCOMPLETE, SKIPPED)] for trial in labels]
    assert judge(NONE, labels, TORCH, [expectation]) == judge(NONE, quiet, TORCH, [expectation])


@given(trials)
def test_every_failure_is_met_broken_or_unexpected(labels: list[list[str]]) -> None:
    told = " ".join(judgement.text for judgement in judge(NONE, labels, TORCH, []))
    failures = {label for trial in labels for label in trial} & set(FAILURES)
    assert all(f"{label} in " in told for label in failures)


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ({"may": ["ok"]}, ['"where" is missing']),
        ({"where": "lokc=none", "may": ["ok"]}, ['key "where"', '"lock"']),
        ({"where": 3, "may": ["ok"]}, ['key "where"', "3 is not a string"]),
        ({"where": "lock=none", "torch": "2.12", "may": ["ok"]}, ['key "torch"', '"<2.12"']),
        ({"where": "lock=none"}, ["exactly one", "must, may and only"]),
        ({"where": "lock=none", "may": ["ok"], "only": ["ok"]}, ["exactly one"]),
        ({"where": "lock=none", "may": "ok"}, ['key "may"', "brackets"]),
        ({"where": "lock=none", "may": []}, ['key "may"', "empty"]),
        ({"where": "lock=none", "may": [1]}, ['key "may"', "1 is not a string"]),
        ({"where": "lock=none", "may": ["ok", "ok"]}, ['key "may"', "twice"]),
        ({"where": "lock=none", "may": ["fx_eror"]}, ['key "may"', '"fx_error"']),
        ({"where": "lock=none", "only": ["skipped"]}, ['key "only"', "never judged"]),
        ({"where": "lock=none", "mst": ["ok"]}, ["mst", '"must"']),
        ({"where": "lock=none", "may": ["ok"], "reason": 1}, ['key "reason"', "not a string"]),
    ],
)
def test_a_bad_table_is_refused(table: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(MatrixError) as caught:
        read_expectation(table, "m.toml: [[expect]] number 2")
    for part in ["m.toml: [[expect]] number 2", *parts]:
        assert part in str(caught.value)
    assert str(caught.value).count("[[expect]]") == 1, "where it stands is said once"
