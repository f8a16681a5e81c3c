"""Delays: seeded by who and where, so that a seed pauses the same points whatever the threads do."""

from __future__ import annotations

import random
import sys
import threading
from functools import partial
from typing import Any

import pytest
from planted import programs
from planted.rig import run

from harness.core.errors import UserError
from harness.core.schedulespec import PORTFOLIO, parse_schedule
from harness.core.workload import Context, Worker
from harness.subject.schedules.delays import _pause


@pytest.mark.parametrize("setting", PORTFOLIO)
def test_the_correct_program_is_never_called_racy(setting: str) -> None:
    for seed in range(6):
        done = run(programs.Correct, f"delays:{seed}:{setting}")
        assert not done.failed
        assert done.told["setting"] == setting


def test_a_race_is_found_by_some_setting_of_the_portfolio() -> None:
    """No odds are claimed. Of `dense` with 60 seeds, where a seed finds it more often than not, all would have to miss:
    less than one in 2^60."""
    assert any(run(programs.LostUpdate, f"delays:{seed}:dense").failed for seed in range(60))


def test_without_a_setting_the_seed_goes_through_the_portfolio() -> None:
    chosen = [run(programs.LostUpdate, f"delays:{seed}").told["setting"] for seed in range(len(PORTFOLIO))]
    assert chosen == list(PORTFOLIO)


@pytest.mark.parametrize("setting", PORTFOLIO)
def test_a_pause_depends_on_the_draw_and_the_point_alone(setting: str) -> None:
    for point in ("fx.window.open", "region.step.enter", "mark.a", "queue.get"):
        pauses = {_pause(point, setting, random.Random("7/worker-0/3")) for _ in range(5)}
        assert len(pauses) == 1
        assert 0 <= pauses.pop() <= 0.1


def test_the_process_wide_generator_is_left_alone() -> None:
    random.seed(5)
    expected = random.Random(5).random()
    run(programs.LostUpdate, "delays:3:dense")
    assert random.random() == expected


def test_the_switch_interval_is_put_back() -> None:
    before = sys.getswitchinterval()
    run(programs.LostUpdate, "delays:1:switch")
    assert sys.getswitchinterval() == before


def test_start_lets_all_workers_begin_at_once() -> None:
    """Nobody does anything before all have started: with the meeting the first body to run finds all threads alive."""
    alive: list[int] = []

    class Many:
        def workers(self, ctx: Context) -> list[Worker]:
            return [Worker(f"worker-{i}", "worker", "cpu", partial(self._run, ctx, f"worker-{i}")) for i in range(5)]

        def _run(self, ctx: Context, name: str) -> None:
            alive.append(sum(thread.name.startswith("worker-") for thread in threading.enumerate()))
            ctx.mark(name, "a")

        def racy(self) -> bool:
            return False

    run(Many, "delays:0:start")
    assert alive[0] == 5


def test_the_meeting_before_the_first_call_waits_for_nobody_who_is_stuck() -> None:
    class Calls(programs.Correct):
        def _run(self, ctx: Any, name: str, lock: Any) -> None:
            lock.acquire(name)
            try:
                ctx.points.reach("compiled_call.enter")
            finally:
                lock.release()

        def racy(self) -> bool:
            return False

    done = run(Calls, "delays:0:start")
    assert not done.failed
    assert done.seconds < 5


@pytest.mark.parametrize("text", ["delays", "delays:x", "delays:1:densely", "delays:1:dense:2"])
def test_a_bad_axis_value_is_one_clear_error(text: str) -> None:
    with pytest.raises(UserError, match="schedule"):
        parse_schedule(text)


def test_a_bad_setting_is_told_the_nearest() -> None:
    with pytest.raises(UserError, match='did you mean "dense"'):
        parse_schedule("delays:1:dens")


@pytest.mark.parametrize("text", ["delays:*:dense", "pct:*:3"])
def test_the_star_of_a_bisection_is_explained(text: str) -> None:
    with pytest.raises(UserError, match=r"another seed in each trial.*harness bisect.*names one seed: (delays|pct):0:"):
        parse_schedule(text)
