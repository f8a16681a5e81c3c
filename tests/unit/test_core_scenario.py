"""Scenarios: values, ids that are safe as file names and different for different scenarios."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from core_strategies import scenarios
from hypothesis import assume, example, given, settings

from harness.core.axes import AXES
from harness.core.errors import MatrixError
from harness.core.scenario import MAX_ID, Scenario


def test_fields_and_defaults_are_those_of_the_axes() -> None:
    fields = [(field.name, field.default) for field in dataclasses.fields(Scenario)]
    assert fields == [(axis.name, axis.default) for axis in AXES]


def test_a_scenario_is_an_immutable_value() -> None:
    scenario = Scenario(lock="first_step")
    with pytest.raises(dataclasses.FrozenInstanceError):
        scenario.lock = "none"  # type: ignore[misc]
    assert {scenario: 1}[Scenario(lock="first_step")] == 1


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (Scenario(), "default"),
        (Scenario(drafters=2, lock="none", checkpoint="reentrant"), "checkpoint=reentrant,drafters=2"),
        (Scenario(lock="span:mask..backward"), "lock=span-mask..backward"),
        (Scenario(lock="each:forward+mask"), "lock=each-mask+forward"),
        (Scenario(devices="cuda:0+cuda:1"), "devices=cuda-0+cuda-1"),
    ],
)
def test_an_id_is_what_differs_from_the_defaults(scenario: Scenario, expected: str) -> None:
    assert scenario.id == expected


def test_an_id_that_loses_something_ends_in_a_hash() -> None:
    ids = [Scenario(workload=name).id for name in ("a/b", "a_b", "a,b", "a-b", "a:b")]
    assert re.fullmatch(r"workload=a_b~[0-9a-f]{8}", ids[0])
    assert ids[1] == "workload=a_b"
    assert re.fullmatch(r"workload=a-b~[0-9a-f]{8}", ids[3])
    assert ids[4] == "workload=a-b"
    assert len(set(ids)) == len(ids)


def test_a_long_id_is_cut_and_stays_unique() -> None:
    long = "x" * 400
    first, second = Scenario(workload=long + "1").id, Scenario(workload=long + "2").id
    assert len(first) == len(second) == MAX_ID
    assert first != second


@given(scenarios)
@example(Scenario(workload="../../etc"))
def test_an_id_is_a_safe_file_name(scenario: Scenario) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_.+=,~-]*", scenario.id)
    assert len(scenario.id) <= MAX_ID
    assert not scenario.id.endswith(".part")


@given(scenarios, scenarios)
@example(Scenario(workload="a,seed=3"), Scenario(workload="a", seed=3))
@example(Scenario(workload="a:b"), Scenario(workload="a-b"))
@settings(max_examples=300)
def test_different_scenarios_have_different_ids(one: Scenario, other: Scenario) -> None:
    assume(one != other)
    assert one.id != other.id


@given(scenarios)
def test_a_scenario_survives_json(scenario: Scenario) -> None:
    read = Scenario.from_dict(json.loads(json.dumps(scenario.to_dict())))
    assert read == scenario
    assert read.id == scenario.id
    assert list(scenario.to_dict()) == [axis.name for axis in AXES]


def test_from_dict_is_strict() -> None:
    with pytest.raises(MatrixError, match='"drafters"'):
        Scenario.from_dict({"drafter": 3})
    with pytest.raises(MatrixError, match="boolean"):
        Scenario.from_dict({"drafters": True})


def test_the_constructor_checks_as_well() -> None:
    with pytest.raises(MatrixError, match='"reentrant"'):
        Scenario(checkpoint="renetrant")


def test_replace_changes_what_is_named_only() -> None:
    scenario = Scenario(lock="first_step", seed=4)
    assert scenario.replace(lock="none") == Scenario(seed=4)
    with pytest.raises(MatrixError, match="lokc"):
        scenario.replace(lokc="none")


def test_describe_shows_the_axes_that_vary_in_axis_order() -> None:
    scenario = Scenario(checkpoint="reentrant")
    assert scenario.describe(["checkpoint", "lock"]) == "lock=none, checkpoint=reentrant"
    assert scenario.describe([]) == "checkpoint=reentrant"
