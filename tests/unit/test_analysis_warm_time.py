"""Who is idle once all are warm, and what keeps them waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness.analysis.warm_time import Spent, names_of, why_idle


def worker(role: str, waited: Mapping[str, float], room_of: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Warm for 10 s."""
    return {"role": role, "warm_s": 10.0, "waited_s": dict(waited), "waited_on_s": {"queue.put": dict(room_of or {})}}


def spent(**workers: dict[str, Any]) -> dict[str, Spent]:
    found = {}
    for name, one in workers.items():
        found[name.replace("_", "-")] = one_spent = Spent()
        one_spent.add(one)
    return found


BUSY = worker("drafter", {"queue.get": 0.4})


def test_who_is_busy_is_kept_waiting_by_nobody() -> None:
    assert why_idle(spent(drafter_0=BUSY, target_0=worker("target", {"queue.put": 9.0}))) == ""


def test_targets_that_are_busy_themselves_are_too_slow() -> None:
    slow = worker("target", {"queue.put": 0.2})
    found = spent(drafter_0=BUSY, drafter_1=worker("drafter", {"queue.get": 3.0}), target_0=slow)
    assert why_idle(found) == (
        "drafter-1 is busy 70 % of the time once all are warm: it waits 30 % of its time for items, and the target is busy "
        "98 % of its own: more targets, or faster ones, would make more"
    )


def test_targets_that_wait_for_room_elsewhere_are_named_with_whose_queue() -> None:
    found = spent(
        drafter_0=worker("drafter", {"queue.get": 3.0, "strategy_lock": 0.5}),
        drafter_1=worker("drafter", {"queue.get": 2.0}),
        drafter_2=BUSY,
        target_0=worker("target", {"queue.put": 8.0}, {"drafter-2": 7.5, "drafter-0": 0.5}),
        target_1=worker("target", {"queue.put": 6.0}, {"drafter-2": 6.0}),
    )
    assert why_idle(found) == (
        "drafter-0 and drafter-1 are busy 65 – 80 % of the time once all are warm: they wait 25 % of their time for items, "
        "while the targets wait 70 % of theirs for room in the queue of drafter-2: a greater queue_depth would let them go on"
    )


def test_targets_that_wait_for_items_themselves_are_the_end_of_what_is_known() -> None:
    found = spent(drafter_0=worker("drafter", {"queue.get": 3.0}), target_0=worker("target", {"queue.get": 9.0}))
    assert why_idle(found).endswith("for items, and the target waits 90 % of its own for items")


@pytest.mark.parametrize(
    ("waited", "told"),
    [
        ({"strategy_lock": 5.0, "queue.get": 1.0}, "for the strategy's lock"),
        ({"compile_lock": 5.0}, "for torch's compile lock, so something still compiles"),
        ({"barrier.wait": 5.0}, "for the others at a barrier"),
        ({"my own lock": 5.0}, "for my own lock"),
        ({"transfer": 5.0}, "for the transfer of items to the device"),
        ({"queue.get": 5.0}, "for items"),
    ],
)
def test_what_is_waited_for_most_is_named(waited: dict[str, float], told: str) -> None:
    said = why_idle(spent(drafter_0=worker("drafter", waited)))
    assert said.endswith((f"50 % of its time {told}", f"40 % of its time {told}"))


def test_a_workload_without_drafters_is_of_all_who_step() -> None:
    assert why_idle(spent(a=worker("worker", {"my lock": 6.0}), b=worker("worker", {}))).startswith("a is busy 40 %")


def test_trials_are_added_up_and_never_more_than_the_time_there_was() -> None:
    one = Spent()
    one.add(worker("drafter", {"queue.get": 4.0}))
    one.add(worker("drafter", {"queue.get": 50.0}))
    assert (one.warm, one.waited, one.busy) == (20.0, {"queue.get": 14.0}, pytest.approx(0.3))


@pytest.mark.parametrize(
    "damaged",
    [
        {}, {"warm_s": None}, {"warm_s": "x"}, {"warm_s": -1.0}, {"warm_s": True}, {"warm_s": float("nan")},
        {"warm_s": 1.0, "waited_s": [1]}, {"warm_s": 1.0, "waited_s": {"queue.get": "x"}, "waited_on_s": {"queue.put": 3}},
        {"warm_s": 1.0, "waited_on_s": 3, "role": 5}, {"warm_s": float("inf")},
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_nothing(damaged: dict[str, Any]) -> None:
    one = Spent()
    one.add(damaged)
    assert one.busy in (0.0, 1.0) or one.warm == 0.0
    assert why_idle({"a": one}) == ""


def test_many_names_are_cut() -> None:
    assert names_of([]) == ""
    assert names_of(["a", "b"]) == "a and b"
    assert names_of([f"d{n}" for n in range(9)]) == "d0, d1, d2, d3, d4, d5 and 3 more"
