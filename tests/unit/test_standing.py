"""A cycle of waits counts once it has stood; and the account that a fork's child begins anew."""

from __future__ import annotations

from harness.core.waitgraph import Edge
from harness.subject.record import Trial
from harness.subject.standing import StandingCycle

CYCLE = [Edge("a", "lock 1", "b"), Edge("b", "lock 2", "a")]
OTHER = [Edge("a", "lock 3", "b"), Edge("b", "lock 2", "a")]
WORDS = "a waits for lock 1, held by b; b waits for lock 2, held by a"


def test_a_cycle_is_told_once_when_it_has_stood() -> None:
    standing = StandingCycle(5.0)
    assert [standing.look(CYCLE, now) for now in (0.0, 2.0, 4.9, 5.0, 6.0, 20.0)] == ["", "", "", WORDS, "", ""]


def test_one_that_was_away_or_was_another_begins_anew() -> None:
    for between in ([], OTHER):
        standing = StandingCycle(5.0)
        looks = [(CYCLE, 0.0), (CYCLE, 4.0), (between, 4.5), (CYCLE, 5.0), (CYCLE, 9.9), (CYCLE, 10.0), (CYCLE, 11.0)]
        assert [standing.look(edges, now) for edges, now in looks] == ["", "", "", "", "", WORDS, ""]


def test_it_says_whether_the_look_before_found_the_same() -> None:
    standing = StandingCycle(5.0)
    found = []
    for edges in (CYCLE, CYCLE, OTHER, [], [], CYCLE, CYCLE):
        standing.look(edges, 0.0)
        found.append(standing.again)
    assert found == [False, True, False, False, False, False, True]


def test_an_account_that_is_reset_is_as_new_and_the_same_object() -> None:
    trial = Trial()
    fresh = {name: repr(value) for name, value in vars(trial).items()}
    trial.tally("drafter-0").steps_ok = 3
    trial.problems.append((1, "state_leak", "x"))
    trial.errors_dropped = trial.other_compiles = trial.other_dense_calls = trial.first_dense_ns = 7
    trial.reset()
    assert {name: repr(value) for name, value in vars(trial).items()} == fresh
