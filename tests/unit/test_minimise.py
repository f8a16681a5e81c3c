"""The bisection of two recordings: on the planted programs, and on orders whose one critical pair is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from planted import programs
from planted.rig import run

from harness.analysis.minimise import CriticalPair, NothingToMinimise, critical_pair, plans, splice
from harness.core.recording import Passed, Recording

WORKERS = {"a": "worker", "b": "worker", "c": "other"}


def order(text: str) -> list[Passed]:
    """`a1 b1 a2`: seats and points."""
    return [Passed(word[0], f"mark.{word[1:]}") for word in text.split()]


def text(events: Sequence[Passed]) -> str:
    return " ".join(f"{event.seat}{event.point.removeprefix('mark.')}" for event in events)


def before(first: str, second: str) -> Any:
    """An order fails if it has `first` before `second`."""

    def fails(events: Sequence[Passed]) -> bool:
        words = text(events).split()
        return words.index(first) < words.index(second)

    return fails


@pytest.mark.parametrize(
    ("length", "spliced"), [(0, "a1 a2 b1 b2"), (1, "b1 a1 a2 b2"), (2, "b1 b2 a1 a2"), (4, "b1 b2 a1 a2")]
)
def test_a_splice_keeps_each_threads_own_order(length: int, spliced: str) -> None:
    assert text(splice(order("b1 b2 a1 a2"), order("a1 a2 b1 b2"), length)) == spliced


def test_a_thread_that_went_another_way_is_asked_nothing_more() -> None:
    assert text(splice(order("a1 ax b1"), order("a1 a2 b1 b2"), 2)) == "a1 ax b1 b2"


def test_the_one_pair_that_decides_is_found() -> None:
    """Every pair of two threads of eight events each, in random orders: 100 cases, none of them by luck."""
    draw = random.Random(0)
    found = 0
    while found < 100:
        first, second = f"a{draw.randint(1, 8)}", f"b{draw.randint(1, 8)}"
        fails = before(first, second)
        one, other = _shuffled(draw), _shuffled(draw)
        if fails(one) == fails(other):
            continue
        failing, passing = (one, other) if fails(one) else (other, one)
        pair = critical_pair(failing, passing, fails)
        assert text(pair.events) == f"{first} {second}"
        assert fails(pair.order)
        assert pair.asked <= 12  # two searches over sixteen, and the two ends
        found += 1


def _shuffled(draw: random.Random) -> list[Passed]:
    threads = {seat: [f"{seat}{i}" for i in range(8, 0, -1)] for seat in "ab"}
    words = []
    while any(threads.values()):
        seat = draw.choice([seat for seat, left in threads.items() if left])
        words.append(threads[seat].pop())
    return order(" ".join(words))


def test_two_orders_that_come_to_the_same_have_no_pair() -> None:
    one = order("a1 b1")
    with pytest.raises(NothingToMinimise, match="does not fail"):
        critical_pair(one, order("b1 a1"), lambda events: False)
    with pytest.raises(NothingToMinimise, match="fails as well"):
        critical_pair(one, order("b1 a1"), lambda events: True)


@pytest.mark.parametrize(
    ("failing", "passing", "failed", "said"),
    [
        # The failing trial ends before c comes to anything; where c does, even last, it does not fail.
        ("b1 a1", "c1 a1 b1", ["b1 a1"], "does not fail"),
        # The passing trial has no b2: put last, it fails as well.
        ("b1 b2 a1", "b1 a1", ["b1 b2 a1", "b1 a1 b2"], "fails all the same"),
        # One thread that goes another way: its own order is no order of two threads.
        ("a1 a2 b1", "a1 ax a2 b1", ["a1 a2 b1", "a1 a2 ax b1"], "are of one thread"),
    ],
)
def test_what_hangs_on_another_way_is_no_pair(failing: str, passing: str, failed: list[str], said: str) -> None:
    with pytest.raises(NothingToMinimise, match=said):
        critical_pair(order(failing), order(passing), lambda events: text(events) in failed)


def test_what_is_said_of_a_pair_was_seen() -> None:
    """Threads that end early or go another way: of each pair that is found, both ways round were run, and differ."""
    found = refused = 0
    for seed in range(3000):
        draw = random.Random(seed)
        ways = {seat: [f"{seat}{draw.choice('123')}" for _ in range(draw.randrange(1, 4))] for seat in "abc"}
        failing = _any_order(draw, ways)
        seat = draw.choice("abc")
        cut = ways[seat][: draw.randrange(len(ways[seat]) + 1)]
        passing = _any_order(draw, {**ways, seat: cut + [f"{seat}9"] * draw.choice([0, 1])})
        first, second = draw.choice(failing), draw.choice(failing)
        ran: dict[tuple[Passed, ...], bool] = {}

        def fails(events: Sequence[Passed], first: Passed = first, second: Passed = second, ran: Any = ran) -> bool:
            there = first in events and (second not in events or events.index(first) < events.index(second))
            return bool(ran.setdefault(tuple(events), there))

        try:
            pair = critical_pair(failing, passing, fails)
        except NothingToMinimise as reason:
            refused += "another way" in str(reason)
            continue
        found += 1
        at = pair.first
        swapped = (*pair.order[:at], pair.order[at + 1], pair.order[at], *pair.order[at + 2 :])
        assert (ran[pair.order], ran[swapped]) == (True, False), (seed, str(pair))
    assert found > 200
    assert refused > 10


def _any_order(draw: random.Random, ways: dict[str, list[str]]) -> list[Passed]:
    left = {seat: list(words) for seat, words in ways.items()}
    words = []
    while any(left.values()):
        words.append(left[draw.choice([seat for seat, own in left.items() if own])].pop(0))
    return order(" ".join(words))


def test_plans_begin_with_what_opens_the_window_and_grow() -> None:
    pair = CriticalPair(tuple(order("c1 a1 a2 b1 b2 a3")), 4, 5, 0)
    made = list(plans(pair, WORKERS))
    assert [[f"{step.role}{step.point.removeprefix('mark.')}" for step in plan.steps] for plan in made] == [
        ["A2", "B2", "A3"],
        ["A1", "B2", "C2", "B3"],
        ["A1", "B1", "B2", "C1", "C2", "B3"],
    ]
    assert made[0].roles == {"A": "worker", "B": "worker"}
    assert [step.nth for step in made[0].steps] == [1, 1, 1]


def test_a_plan_counts_occurrences_since_the_roles_previous_step() -> None:
    pair = CriticalPair(tuple(order("a1 a1 a1 b1 a2")), 3, 4, 0)
    smallest = next(plans(pair, WORKERS))
    assert [(step.role, step.nth) for step in smallest.steps] == [("A", 3), ("B", 1), ("A", 1)]


def test_the_start_of_a_thread_is_no_step() -> None:
    start = Passed("a", "thread.start")
    pair = CriticalPair((start, *order("b1 a1")), 1, 2, 0)
    assert [step.point for step in next(plans(pair, WORKERS)).steps] == ["mark.1", "mark.1"]


@pytest.mark.parametrize(
    ("program", "depth"),
    [
        (programs.CheckThenAct, 2),
        (programs.LostUpdate, 2),
        (programs.LockInversion, 2),
        (programs.Aba, 2),
        (programs.ThreeThreads, 3),
    ],
)
def test_a_planted_race_becomes_a_plan_that_reproduces_it(program: type[Any], depth: int) -> None:
    ended: dict[bool, Recording] = {}
    for seed in range(400):
        done = run(program, f"pct:{seed}:{depth}:{program.points}")
        assert done.recording is not None
        ended.setdefault(done.failed, done.recording)
        if len(ended) == 2:
            break

    def fails(events: Sequence[Passed]) -> bool:
        return run(program, "replay", recording=Recording(tuple(events))).failed

    pair = critical_pair(ended[True].events, ended[False].events, fails)
    workers = ended[True].head["workers"]
    reproduced = [all(run(program, "directed", plan=plan).failed for _ in range(10)) for plan in plans(pair, workers)]
    assert any(reproduced)
