"""The shortest `where` for some scenarios: right for any choice of them, and as a person would have put it."""

from __future__ import annotations

import itertools
import random

import pytest

from harness.analysis.selection import where_for
from harness.core.scenario import Scenario
from harness.core.where import parse_where

LOCKS = ("none", "per_call", "first_step")
MODES = ("none", "reentrant", "non_reentrant")
ALL = [Scenario(lock=lock, checkpoint=mode) for lock, mode in itertools.product(LOCKS, MODES)]


def having(**axes: str) -> list[Scenario]:
    return [scenario for scenario in ALL if all(scenario.value(axis) == value for axis, value in axes.items())]


def rest(wanted: list[Scenario]) -> list[Scenario]:
    return [scenario for scenario in ALL if scenario not in wanted]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (having(lock="none"), ["lock=none"]),
        (having(checkpoint="reentrant"), ["checkpoint=reentrant"]),
        (having(lock="none", checkpoint="none"), ["lock=none and checkpoint=none"]),
        (having(lock="none") + having(lock="per_call"), ["lock=none", "lock=per_call"]),
        (having(lock="none") + having(checkpoint="none", lock="first_step"),
         ["lock=none", "lock=first_step and checkpoint=none"]),
        (ALL, ["lock=*"]),
        ([], []),
    ],
)  # fmt: skip
def test_what_a_person_would_write(wanted: list[Scenario], said: list[str]) -> None:
    assert where_for(wanted, rest(wanted)) == said


@pytest.mark.parametrize("seed", range(40))
def test_any_choice_is_matched_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    wanted = [scenario for scenario in ALL if chance.random() < chance.random()]
    found = [parse_where(text) for text in where_for(wanted, rest(wanted))]
    assert [scenario for scenario in ALL if any(where.matches(scenario) for where in found)] == wanted
    assert len(found) <= len(wanted)


@pytest.mark.parametrize("value", ['a "b" [c]*', "a (b) and c", "plain", "what?"])
def test_odd_values_are_matched(value: str) -> None:
    wanted, other = Scenario(workload=value), Scenario(workload="axb")
    (text,) = where_for([wanted], [other])
    assert parse_where(text).matches(wanted)
    assert not parse_where(text).matches(other)


def test_a_scenario_cannot_be_both() -> None:
    with pytest.raises(ValueError, match="both"):
        where_for(ALL[:1], ALL)
