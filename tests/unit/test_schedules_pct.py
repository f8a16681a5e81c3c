"""PCT on the planted programs: what it claims is counted.

A run is serial and its decisions come from the seed, so the counts below are the same each time: none of these tests can
fail by chance.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from planted import programs
from planted.rig import run

from harness.core.errors import UserError
from harness.core.schedulespec import parse_schedule
from harness.core.workload import Context, Worker
from harness.subject.identity import Threads
from harness.subject.schedules.base import Setting
from harness.subject.schedules.pct import Pct


@pytest.mark.parametrize(
    ("program", "threads", "depth"),
    [
        (programs.CheckThenAct, 2, 2),
        (programs.LostUpdate, 2, 2),
        (programs.LockInversion, 2, 2),
        (programs.Aba, 2, 2),
        (programs.ThreeThreads, 3, 3),
    ],
)
def test_the_bound_holds(program: type[Any], threads: int, depth: int) -> None:
    """Of all draws that a seed can make, a share of 1/(n·k^(d-1)) at least finds a bug of depth d: every order of
    priorities with every set of change points is run once, so this is the probability itself and no sample of it."""
    k = program.points
    found = total = 0
    for order in itertools.permutations(range(threads)):
        for changes in itertools.combinations(range(1, k + 1), depth - 1):

            def draw(schedule: Pct, order: Any = order, changes: Any = changes) -> None:
                schedule._priorities = {f"worker-{i}": float(depth + place) for i, place in enumerate(order)}
                schedule._changes = {step: depth - 1 - i for i, step in enumerate(changes)}

            found += run(program, f"pct:0:{depth}:{k}", tune=draw).failed
            total += 1
    assert found / total >= 1 / (threads * k ** (depth - 1))


def test_seeds_draw_priorities_and_change_points_evenly() -> None:
    """What the share above stands on. Of 1200 draws each of 6 change points comes 200 times, each thread is first 600
    times; five standard deviations are 65 and 87, which a fair draw exceeds less than once in a million."""
    changes: Counter[int] = Counter()
    first: Counter[str] = Counter()
    for seed in range(1200):
        made = Pct(parse_schedule(f"pct:{seed}:2:6"), setting())
        made.begin({"a": "worker", "b": "worker"})
        changes.update(made._changes)
        first[max(made._priorities, key=lambda name: made._priorities[name])] += 1
    assert all(abs(changes[step] - 200) < 65 for step in range(1, 7))
    assert abs(first["a"] - 600) < 87


def setting() -> Setting:
    return Setting({}, Threads(), Path(), lambda: 0, {})


@pytest.mark.parametrize("program", [programs.LostUpdate, programs.CheckThenAct])
def test_a_bug_of_depth_two_is_not_found_with_depth_one(program: type[Any]) -> None:
    assert not any(run(program, f"pct:{seed}:1:{program.points}").failed for seed in range(30))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_correct_program_is_never_called_racy(depth: int) -> None:
    assert not any(run(programs.Correct, f"pct:{seed}:{depth}:10").failed for seed in range(50))


def test_k_is_what_the_programs_say() -> None:
    for program in (programs.LostUpdate, programs.Aba, programs.ThreeThreads, programs.Correct):
        assert run(program, "pct:0:1").told["steps"] == program.points


@pytest.mark.parametrize("program", [programs.LostUpdate, programs.LockInversion, programs.ThreeThreads])
def test_a_seed_gives_the_same_order_each_time(program: type[Any]) -> None:
    """One order a seed: the other scheduler (the system's) decides nothing."""
    for seed in range(10):
        orders = {run(program, f"pct:{seed}:3:7").recording.events for _ in range(4)}  # type: ignore[union-attr]
        assert len(orders) == 1


def test_one_thread_at_a_time_runs_between_points() -> None:
    inside: list[int] = []
    most: list[int] = []

    class Counting:
        def workers(self, ctx: Context) -> list[Worker]:
            return [Worker(f"worker-{i}", "worker", "cpu", partial(self._run, ctx, f"worker-{i}")) for i in range(4)]

        def _run(self, ctx: Context, name: str) -> None:
            for _ in range(5):
                ctx.mark(name, "enter")
                inside.append(1)
                most.append(len(inside))
                for _ in range(2000):
                    pass
                inside.pop()

        def racy(self) -> bool:
            return False

    run(Counting, "pct:7:3:24")
    assert most == [1] * 20


def test_a_thread_that_waits_without_a_word_does_not_stop_the_others_for_ever() -> None:
    class Silent:
        def __init__(self) -> None:
            self._opened = threading.Event()

        def workers(self, ctx: Context) -> list[Worker]:
            return [
                Worker("worker-0", "worker", "cpu", partial(self._wait, ctx)),
                Worker("worker-1", "worker", "cpu", partial(self._open, ctx)),
            ]

        def _wait(self, ctx: Context) -> None:
            ctx.mark("worker-0", "wait")
            assert self._opened.wait(20)
            ctx.mark("worker-0", "on")

        def _open(self, ctx: Context) -> None:
            ctx.mark("worker-1", "open")
            self._opened.set()

        def racy(self) -> bool:
            return False

    lost = [run(Silent, f"pct:{seed}:1", silent_s=0.2).told["lost"] for seed in range(8)]
    assert max(lost) == 1  # where worker-0 was first


@pytest.mark.parametrize("nested", [False, True])
def test_a_point_within_a_wait_leaves_it_a_wait(nested: bool) -> None:
    """As an operation of torch's in the argument of a queue's put is one, or a wait within another: the thread is taken for
    running otherwise, and once it blocks all others wait for it until the silence is over."""

    class Handing:
        def __init__(self) -> None:
            self._given, self._done = threading.Event(), 0

        def workers(self, ctx: Context) -> list[Worker]:
            return [
                Worker("worker-0", "worker", "cpu", partial(self._take, ctx)),
                Worker("worker-1", "worker", "cpu", partial(self._give, ctx)),
            ]

        def _take(self, ctx: Context) -> None:
            ctx.mark("worker-0", "begin")
            with ctx.waiting("worker-0", "the item", lambda: () if self._given.is_set() else ("worker-1",)):
                if nested:
                    with ctx.waiting("worker-0", "nothing", tuple):
                        pass
                else:
                    ctx.mark("worker-0", "within")
                assert self._given.wait(20)
            self._done += 1

        def _give(self, ctx: Context) -> None:
            for n in range(4):
                ctx.mark("worker-1", f"work-{n}")
            self._given.set()

        def racy(self) -> bool:
            return not self._done

    runs = [run(Handing, f"pct:{seed}:2:6", silent_s=1.0) for seed in range(8)]
    assert [one.told["lost"] for one in runs] == [0] * 8
    assert not any(one.racy for one in runs)


@pytest.mark.parametrize("text", ["pct", "pct:1", "pct:a:2", "pct:1:0", "pct:1:2:0", "pct:1:2:3:4", "pct:-1:2", "pcd:1:2"])
def test_a_bad_axis_value_is_one_clear_error(text: str) -> None:
    with pytest.raises(UserError, match="schedule"):
        parse_schedule(text)
