"""Where along a list of versions the verdict changes."""

from __future__ import annotations

import random

import pytest

from harness.analysis.intervals import trials_for_safe
from harness.analysis.ladder import TRIES
from harness.analysis.turning import TurningPoints

VERSIONS = tuple(f"2.{minor}.0" for minor in range(4, 15))


def find(
    fails: set[str], rate: float = 1.0, dumb: frozenset[str] = frozenset()
) -> tuple[TurningPoints, dict[str, int]]:
    """Search where these versions fail at this rate, and others do not run."""
    dice = random.Random(2)
    points = TurningPoints(VERSIONS)
    ran: dict[str, int] = {}
    while (version := points.next()) is not None:
        ran[version] = ran.get(version, 0) + 1
        if version in dumb:
            points.record(version, None, reason="setup_error: no such option")
        else:
            failed = version in fails and dice.random() < rate
            points.record(version, failed, witness={"trial": version} if failed else None)
    return points, ran


@pytest.mark.parametrize("last", range(1, len(VERSIONS)))
def test_every_single_turn_is_found_by_halving(last: int) -> None:
    points, ran = find(set(VERSIONS[:last]), rate=0.5)
    (turn,) = points.turns()
    assert (turn.older, turn.newer) == (VERSIONS[last - 1], VERSIONS[last])
    assert (turn.was, turn.now, turn.between) == ("unsafe", "safe", ())
    assert all(count <= trials_for_safe() for count in ran.values())


def test_a_turn_to_the_worse() -> None:
    points, _ = find({VERSIONS[-1], VERSIONS[-2]})
    (turn,) = points.turns()
    assert (turn.was, turn.now, turn.newer) == ("safe", "unsafe", VERSIONS[-2])


def test_a_turn_and_a_turn_back_between_ends_that_agree() -> None:
    points, ran = find(set(VERSIONS[4:7]))
    assert [(turn.older, turn.newer) for turn in points.turns()] == [("2.7.0", "2.8.0"), ("2.10.0", "2.11.0")]
    assert set(ran) == set(VERSIONS), "no version is judged by its neighbours"


@pytest.mark.parametrize(("fails", "verdict"), [(set(VERSIONS), "unsafe"), (set(), "safe")])
def test_no_turn(fails: set[str], verdict: str) -> None:
    points, _ = find(fails)
    assert points.turns() == ()
    assert {version.verdict for version in points.report()} == {verdict}


def test_the_ends_come_first() -> None:
    points = TurningPoints(VERSIONS)
    assert points.next() == VERSIONS[0]
    points.record(VERSIONS[0], True)
    assert points.next() == VERSIONS[-1]
    points.record(VERSIONS[-1], False)
    assert points.next() == VERSIONS[-1], "one quiet trial is not enough"
    assert points.left(VERSIONS[-1]) == trials_for_safe() - 1


def test_what_does_not_run_is_stepped_over_and_named() -> None:
    dumb = frozenset({VERSIONS[0], VERSIONS[6]})
    points, ran = find(set(VERSIONS[:6]), dumb=dumb)
    (turn,) = points.turns()
    assert (turn.older, turn.newer, turn.between) == (VERSIONS[5], VERSIONS[7], (VERSIONS[6],))
    assert all(ran[version] == TRIES for version in dumb if version in ran)
    report = {version.version: version for version in points.report()}
    assert report[VERSIONS[0]].verdict == "incomplete"
    assert report[VERSIONS[0]].reason == "setup_error: no such option"


def test_when_nothing_runs() -> None:
    points, _ = find(set(), dumb=frozenset(VERSIONS))
    assert points.next() is None
    assert points.turns() == ()
