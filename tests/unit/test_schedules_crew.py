"""Who can still get anywhere: the fixed point that every ending rests on, on hand-made situations."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from harness.subject.identity import Thread, Threads
from harness.subject.schedules.base import ENGINE, QUEUE, Wait
from harness.subject.schedules.crew import Crew


class Hand:
    """A crew of threads that exist (so that none counts as gone), by worker name."""

    def __init__(self, *names: str, engine: tuple[str, ...] = ()) -> None:
        self.crew = Crew(Threads())
        self.crew.announce(dict.fromkeys(names, "worker"))
        self.alive = threading.Event()
        self.threads: dict[str, Thread] = {}
        self._running: list[threading.Thread] = []
        for name in (*names, *engine):
            made = threading.Thread(target=self.alive.wait, args=(30,), daemon=True)
            made.start()
            self._running.append(made)
            assert made.ident is not None
            record = Thread(name, made.ident, 0, name in engine, "", worker="" if name in engine else name)
            self.threads[name] = record
            self.crew.seat(record)

    def close(self) -> None:
        self.alive.set()
        for made in self._running:
            made.join()

    def waits(self, name: str, *on: str | int, any_of: bool = False, what: str = "lock", kind: str = "lock") -> None:
        self.crew.seat(self.threads[name]).wait = Wait(what, lambda: on, any_of=any_of, kind=kind)

    def held(self, name: str) -> None:
        self.crew.arrive(self.threads[name], "mark.a", "")

    def able(self) -> set[str]:
        found = self.crew.able(lambda seat: False)
        return {name for name, record in self.threads.items() if record.ident in found}

    def chain(self, name: str) -> str:
        return str(self.crew.chain(self.crew.seat(self.threads[name]), self.crew.able(lambda seat: False)))


@pytest.fixture
def hand() -> Iterator[Hand]:
    made = Hand("a", "b", "c", engine=("autograd-1",))
    yield made
    made.close()


def test_who_runs_is_able(hand: Hand) -> None:
    assert hand.able() == {"a", "b", "c"}  # an engine thread that serves nobody is idle


def test_who_waits_for_a_runner_is_able(hand: Hand) -> None:
    hand.waits("a", "b")
    hand.waits("c", "a")
    assert hand.able() == {"a", "b", "c"}


def test_who_waits_for_a_held_one_is_stuck_through_any_number_of_others(hand: Hand) -> None:
    hand.held("b")
    hand.waits("a", "b")
    hand.waits("c", "a")
    assert hand.able() == set()
    assert hand.chain("c") == "c waits for lock, held by a; a waits for lock, held by b; b is held at mark.a"


def test_all_holders_are_needed_but_one_producer_is_enough(hand: Hand) -> None:
    hand.held("b")
    hand.waits("a", "b", "c")
    assert hand.able() == {"c"}
    hand.waits("a", "b", "c", any_of=True)
    assert hand.able() == {"a", "c"}


def test_a_wait_for_an_unknown_one_is_stuck_only_when_nobody_else_can_come(hand: Hand) -> None:
    hand.crew.seat(hand.threads["a"]).wait = Wait("something")
    assert "a" in hand.able()
    hand.held("b")
    hand.held("c")
    assert hand.able() == set()


def test_a_wait_that_is_over_is_none(hand: Hand) -> None:
    hand.held("b")
    hand.waits("a")  # nobody is in the way any more
    assert "a" in hand.able()


def test_a_cycle_is_stuck_and_is_called_a_deadlock(hand: Hand) -> None:
    hand.waits("a", "b")
    hand.waits("b", "a")
    assert hand.able() == {"c"}
    assert hand.chain("a").endswith("which is a deadlock")


def test_who_has_ended_holds_nobody_up(hand: Hand) -> None:
    hand.waits("a", "b")
    hand.crew.end(hand.threads["b"])
    assert "a" in hand.able()


def test_a_worker_that_has_not_begun_may_still_come(hand: Hand) -> None:
    hand.crew.announce({"late": "worker"})
    for name in ("a", "b", "c"):
        hand.held(name)
    hand.crew.seat(hand.threads["a"]).at = None
    hand.waits("a", "late")
    assert "a" in hand.able()


def test_waiting_in_the_engine_is_for_its_thread_and_that_one_counts_while_it_serves(hand: Hand) -> None:
    engine = hand.threads["autograd-1"]
    hand.waits("a", engine.ident, what="autograd's thread of cuda:0", kind=ENGINE)
    assert hand.able() == {"a", "b", "c", "autograd-1"}
    hand.held("b")
    hand.waits("autograd-1", "b")
    assert hand.able() == {"c"}
    assert "held by b" in hand.chain("a")


@pytest.fixture
def two_devices() -> Iterator[Hand]:
    made = Hand("a", "b", "c", engine=("autograd-0", "autograd-1"))
    for number in (0, 1):
        made.threads[f"autograd-{number}"].engine_device = f"cuda:{number}"
    yield made
    made.close()


def test_the_engine_s_thread_of_another_device_than_the_one_waited_for_is_idle(two_devices: Hand) -> None:
    # Seen on two H200s: what a lock had excluded was undecided, since the other device's thread was taken for running.
    hand = two_devices
    hand.threads["autograd-1"].worker = "b"  # whose backward it ran last
    hand.threads["autograd-0"].worker = "a"
    hand.waits("a", hand.threads["autograd-0"].ident, what="autograd's thread of cuda:0", kind=ENGINE)
    hand.held("autograd-0")
    hand.waits("b", "a")
    hand.waits("c", "a")
    assert hand.able() == set()
    assert "held by autograd-0" in hand.chain("b")


def test_the_engine_s_thread_that_runs_a_graph_of_a_worker_that_waits_is_busy_whatever_its_device(two_devices: Hand) -> None:
    hand = two_devices
    hand.threads["autograd-1"].worker = "a"  # it came to a node of a's graph
    hand.waits("a", hand.threads["autograd-0"].ident, kind=ENGINE)
    assert "autograd-1" in hand.able()


def test_an_engine_s_thread_of_no_known_device_is_busy_while_anybody_waits(two_devices: Hand) -> None:
    hand = two_devices
    hand.threads["autograd-1"].engine_device = ""
    assert "autograd-1" not in hand.able()
    hand.waits("a", hand.threads["autograd-0"].ident, kind=ENGINE)
    assert "autograd-1" in hand.able()


def test_a_thread_that_python_no_longer_knows_is_gone(hand: Hand) -> None:
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    record = Thread("gone", gone.ident or 0, 0, False, "")
    hand.crew.seat(record)
    assert record.ident not in hand.crew.able(lambda seat: False)


def test_an_arrival_ends_a_wait_that_nobody_took_back(hand: Hand) -> None:
    hand.waits("a", "b", kind=QUEUE)
    hand.held("a")
    assert hand.crew.seat(hand.threads["a"]).wait is None
