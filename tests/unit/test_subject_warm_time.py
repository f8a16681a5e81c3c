"""What a worker waited for once all were warm: which waits count, and whose they are."""

from __future__ import annotations

import threading
import time

import pytest

from harness.subject import warm_time
from harness.subject.record import Tally, Trial

S = 1_000_000_000


def warm_trial() -> tuple[Trial, Tally, Tally]:
    """Two drafters, the later one warm at 2 s, and a target that made its first item at 1 s."""
    trial = Trial()
    a, b = trial.tally("a", "drafter"), trial.tally("b", "drafter")
    trial.tally("t", "target")
    trial.good_step("t", 1 * S // 2, 5, None)
    trial.good_step("a", 1 * S, 5, 0.0)
    assert trial.warm_ns is None
    trial.good_step("b", 2 * S, 5, 0.0)
    assert trial.warm_ns == 2 * S
    return trial, a, b


def test_waits_before_all_are_warm_do_not_count_and_one_that_goes_on_counts_from_then() -> None:
    trial = Trial()
    a, _ = trial.tally("a", "drafter"), trial.tally("b", "drafter")
    trial.good_step("a", 1 * S, 5, 0.0)
    trial.waited("a", "queue.get", 1 * S, S * 3 // 2)
    trial.good_step("b", 2 * S, 5, 0.0)
    trial.waited("a", "queue.get", S * 3 // 2, 3 * S)
    trial.good_step("a", 6 * S, 5, 0.0)
    assert a.as_json()["waited_s"] == {"queue.get": 1.0}
    assert a.as_json()["warm_s"] == 4.0
    assert a.as_json()["busy"] == 0.75


def test_what_comes_after_the_last_good_step_is_no_wait_for_work() -> None:
    trial, a, _ = warm_trial()
    trial.waited("a", "queue.get", 2 * S, 3 * S)
    trial.good_step("a", 4 * S, 5, 0.0)
    trial.waited("a", "queue.get", 4 * S, 9 * S)  # the queue was closed
    assert a.as_json()["waited_s"] == {"queue.get": 1.0}
    assert a.as_json()["busy"] == 0.5


def test_who_takes_no_step_once_all_are_warm_has_no_share() -> None:
    _, a, b = warm_trial()
    for tally in (a, b):
        found = tally.as_json()
        assert (found["warm_s"], found["busy"], found["waited_s"], found["waited_on_s"]) == (None, None, {}, {})


def test_room_is_told_by_whose_queue_it_is() -> None:
    trial, _, _ = warm_trial()
    for whom, until in (("a", 3), ("b", 5), ("a", 6)):
        trial.waited("t", "queue.put", (until - 1) * S, until * S, whom)
        trial.good_step("t", until * S, 5, None)
    found = trial.tally("t").as_json()
    assert found["waited_s"] == {"queue.put": 3.0}
    assert found["waited_on_s"] == {"queue.put": {"a": 2.0, "b": 1.0}}


def test_a_process_s_own_account_is_taken_over() -> None:
    trial, a, b = warm_trial()
    trial.waited("a", "queue.get", 2 * S, 3 * S)
    trial.waited("a", "queue.put", 3 * S, S * 7 // 2, "x")
    trial.good_step("a", 4 * S, 5, 0.0)
    a.warm.cpu_ns = S // 4
    b.warm.take(a.as_json())
    keys = ("warm_s", "waited_s", "waited_on_s", "busy", "cpu_s")
    assert {key: b.as_json()[key] for key in keys} == {key: a.as_json()[key] for key in keys} == {
        "warm_s": 2.0, "waited_s": {"queue.get": 1.0, "queue.put": 0.5}, "waited_on_s": {"queue.put": {"x": 0.5}}, "busy": 0.25,
        "cpu_s": 0.25,
    }  # fmt: skip


def test_a_workload_without_drafters_is_warm_once_all_its_workers_are() -> None:
    trial = Trial()
    trial.tally("a", "worker")
    trial.tally("b", "worker")
    trial.good_step("a", 1 * S, 5, 0.0)
    trial.good_step("b", 3 * S, 5, 0.0)
    assert trial.warm_ns == 3 * S


class Clock:
    """The CPU time of this thread, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 0
        self.asked = 0
        monkeypatch.setattr(warm_time.time, "thread_time_ns", self)

    def __call__(self) -> int:
        self.asked += 1
        return self.ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def step(trial: Trial, worker: str, at: float, clock: Clock, cpu: float) -> None:
    clock.ns = int(cpu * S)
    trial.good_step(worker, int(at * S), 5, 0.0)


def test_the_thread_s_time_is_that_from_when_all_are_warm_to_its_last_good_step(clock: Clock) -> None:
    trial = Trial()
    a, b = trial.tally("a", "drafter"), trial.tally("b", "drafter")
    step(trial, "a", 1, clock, 10.0)
    step(trial, "b", 2, clock, 20.0)  # all are warm
    step(trial, "b", 4, clock, 21.0)
    step(trial, "b", 6, clock, 22.5)
    assert (b.as_json()["cpu_s"], b.as_json()["warm_s"]) == (2.5, 4.0)
    step(trial, "a", 5, clock, 12.0)  # three of its four seconds are warm
    assert (a.as_json()["cpu_s"], a.as_json()["warm_s"]) == (1.5, 3.0)
    assert clock.asked == 5, "once a step"


def test_who_waits_until_all_are_warm_runs_after_that(clock: Clock) -> None:
    """A step that begins before then: what of it came after is told by the waits."""
    trial = Trial()
    a, _ = trial.tally("a", "drafter"), trial.tally("b", "drafter")
    step(trial, "a", 1, clock, 0.0)
    trial.waited("a", "queue.get", 1 * S, 3 * S)
    step(trial, "b", 10, clock, 0.0)
    trial.waited("a", "barrier.wait", 4 * S, 10 * S + S // 2)  # it was at work from 3 to 4, and from 10.5 on
    step(trial, "a", 13.5, clock, 2.0)
    assert a.as_json()["cpu_s"] == pytest.approx(2.0 * 3 / 4)
    trial.waited("a", "queue.get", 14 * S, 15 * S)
    step(trial, "a", 16, clock, 3.0)
    assert a.as_json()["cpu_s"] == pytest.approx(2.5), "a whole step is in it whole"


def test_of_a_first_step_once_warm_or_of_several_threads_it_is_not_known(clock: Clock) -> None:
    trial, a, _ = warm_trial()
    late = trial.tally("u", "target")
    step(trial, "u", 3, clock, 1.0)
    step(trial, "u", 4, clock, 2.0)
    assert late.as_json()["warm_s"] == 2.0
    assert late.as_json()["cpu_s"] is None
    thread = threading.Thread(target=step, args=(trial, "a", 3, clock, 1.0))
    thread.start()
    thread.join()
    assert (a.as_json()["warm_s"], a.as_json()["cpu_s"]) == (1.0, None)
    taken = Tally("drafter")
    taken.warm.take(a.as_json())
    assert taken.as_json()["cpu_s"] is None


def test_a_wait_before_all_are_warm_opens_no_account() -> None:
    trial = Trial()
    trial.waited("ghost", "queue.get", 0, S)
    assert not trial.workers


def compute(seconds: float) -> None:
    """Until this thread ran for so long: another program may have its core meanwhile."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_thread_that_computes_runs_and_one_that_sleeps_within_its_step_does_not() -> None:
    """By the true clocks. That either takes longer than it should makes no difference."""
    found = {}
    for work in (compute, time.sleep):
        trial = Trial()
        tally = trial.tally("a", "drafter")
        trial.good_step("a", time.perf_counter_ns(), 5, 0.0)
        work(0.2)
        trial.good_step("a", time.perf_counter_ns(), 5, 0.0)
        found[work] = tally.as_json()
    computed, slept = found[compute], found[time.sleep]
    assert 0.2 <= computed["cpu_s"] <= computed["warm_s"] + 0.05
    assert slept["cpu_s"] <= 0.05 < 0.2 <= slept["warm_s"]
