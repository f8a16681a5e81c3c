"""What a worker waited for once all were warm: which waits count, and whose they are."""

from __future__ import annotations

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
    b.warm.take(a.as_json())
    keys = ("warm_s", "waited_s", "waited_on_s", "busy")
    assert {key: b.as_json()[key] for key in keys} == {key: a.as_json()[key] for key in keys} == {
        "warm_s": 2.0, "waited_s": {"queue.get": 1.0, "queue.put": 0.5}, "waited_on_s": {"queue.put": {"x": 0.5}}, "busy": 0.25,
    }  # fmt: skip


def test_a_workload_without_drafters_is_warm_once_all_its_workers_are() -> None:
    trial = Trial()
    trial.tally("a", "worker")
    trial.tally("b", "worker")
    trial.good_step("a", 1 * S, 5, 0.0)
    trial.good_step("b", 3 * S, 5, 0.0)
    assert trial.warm_ns == 3 * S
