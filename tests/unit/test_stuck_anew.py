"""Who could end a wait, where what a call is made on changes until the call is made: with a loop, or by an assignment."""

from __future__ import annotations

import pytest
from test_stuck import FILE, Thing, inside, line_of, prog, thread, why

from harness.core.stuck.views import Diagnosis, Frame

CONSUMER = prog(
    """
    def consume(q):
        while True:
            q.get()
            barrier.wait()
    """
)
IN_LOOPS = {
    "item": "def produce(self):\n    for j in range(2):\n        for k in range(6):\n            self.q[j].put(k)\n",
    "name": "def produce(self):\n    for q in self.q:\n        for k in range(6):\n            q.put(k)\n",
    "attribute": "def produce(self):\n    for part in parts:\n        part.q.put(1)\n",
    "pair": "def produce(self):\n    for n, q in enumerate(self.q):\n        q.put(n)\n",
    "while": "def produce(self):\n    while more():\n        q.put(1)\n        q = pick()\n",
    "later": "def produce(self):\n    q.put(0)\n    q = self.q[1]\n    q.put(1)\n",
    "right side": "def produce(self):\n    q = (\n        q.put(0)\n    )\n    q.put(1)\n",
    "with": "def produce(self):\n    q.put(0)\n    with slot() as q:\n        q.put(1)\n",
    "walrus": "def produce(self):\n    while q := pick(q.put(0)):\n        pass\n",
    "comprehension": "def produce(self):\n    return [q.put(1) for q in self.q]\n",
    "a method's": "def produce(self):\n    self.out.put(0)\n    self.swap()\n    self.out.put(1)\n"
    "def swap(self):\n    self.out = self.other\n",
    "more arguments": "def produce(self):\n    for out in self.q:\n        out.put(1, True, 3.0)\n",
}  # fmt: skip
ONE = {
    "another": "def produce(self):\n    for k in range(6):\n        q.put(k)\n",
    "before": "def produce(self):\n    q = self.q[0]\n    for k in range(6):\n        q.put(k)\n",
    "another's": "def produce(self):\n    for q.last in range(6):\n        q.put(q.last)\n",
    "behind": "def produce(self):\n    for q in self.q:\n        pass\n    other.put(1)\n",
}


def stands(text: str) -> Diagnosis:
    """A producer that has no room in the first queue, whose consumer waits at a barrier for that of the second."""
    text = CONSUMER + prog(text)
    first, second = Thing(1, "Queue"), Thing(2, "Queue")
    barrier = Thing(3, "Barrier", {"parties": 2})
    queues = Thing(4, "list", attributes={"0": first, "1": second})
    own = Thing(5, "App", attributes={"q": queues, "out": first})
    zero = Thing(6, "int", {"text": "0"})
    part = Thing(7, "Part", attributes={"q": first})
    names = {"self": own, "q": first, "other": first, "out": first, "part": part, "j": zero, "k": zero, "n": zero}
    put = inside("Queue.put", "queue", self=first)
    producer = thread("producer", 10, put, Frame("produce", FILE, line_of(text, ".put("), names.get))
    meets = inside("Barrier.wait", "threading", self=barrier)
    has = {"q": first, "barrier": barrier}
    full = thread("full", 11, meets, Frame("consume", FILE, line_of(text, "barrier.wait"), has.get))
    gets = inside("Queue.get", "queue", self=second)
    empty = thread("empty", 12, gets, Frame("consume", FILE, line_of(text, "q.get"), {**has, "q": second}.get))
    return why(text, [producer, full, empty], hung=True)


@pytest.mark.parametrize("text", IN_LOOPS.values(), ids=IN_LOOPS)
def test_what_a_name_means_next_is_not_known_so_its_thread_may_be_who_ends_the_wait(text: str) -> None:
    wait = next(wait for wait in stands(text).waits if wait.thread.name == "empty")
    assert wait.nobody == ""
    assert list(wait.helpers) == [10]
    assert wait.helpers[10].startswith("may be who puts into it, at prog.py:")


@pytest.mark.parametrize("text", ONE.values(), ids=ONE)
def test_what_a_name_keeps_meaning_is_known(text: str) -> None:
    wait = next(wait for wait in stands(text).waits if wait.thread.name == "empty")
    assert (wait.helpers, wait.nobody[:49]) == ({}, "it is empty, and no living thread's code puts int")


def test_queues_that_are_filled_one_after_the_other_are_a_deadlock_where_their_consumers_meet() -> None:
    (found,) = stands("def produce(self):\n    for q in self.q:\n        for k in range(6):\n            q.put(k)\n").findings
    assert found.kind == "cycle"
    assert set(found.threads) == {10, 11, 12}
    assert "empty waits for an item of queue `q` (prog.py:3), and producer may be who puts into it, at prog.py:8" in found.text


def test_a_producer_that_works_at_the_first_of_its_queues_leaves_the_second_to_no_suspicion() -> None:
    text = prog(
        """
        def consume(q):
            q.get()
        def produce(qs):
            for q in qs:
                work()
                q.put(1)
        """
    )
    first, second = Thing(1, "Queue"), Thing(2, "Queue")
    takers = [
        thread(f"consumer-{n}", 11 + n, inside("Queue.get", "queue", self=q), Frame("consume", FILE, 2, {"q": q}.get))
        for n, q in enumerate((first, second))
    ]
    works = thread("producer", 10, Frame("produce", FILE, 5, {"q": first}.get), still=False)
    join = inside("Thread.join", "threading", self=Thing(9, "Thread", {"ident": 12}))
    found = why(text, [*takers, works, thread("main", 13, join)])
    assert not found.findings
    helpers = {wait.thread.name: wait.helpers for wait in found.waits}
    assert helpers["consumer-0"] == {10: "puts into it at prog.py:6"}
    assert helpers["consumer-1"] == {10: "may be who puts into it, at prog.py:6"}


def test_who_goes_from_barrier_to_barrier_may_come_to_the_one_that_is_waited_at() -> None:
    text = prog("def f(barriers):\n    for b in barriers:\n        b.wait()\n")
    two = [Thing(1, "Barrier", {"parties": 2}), Thing(2, "Barrier", {"parties": 2})]
    threads = [
        thread(f"t{n}", 11 + n, inside("Barrier.wait", "threading", self=b), Frame("f", FILE, 3, {"b": b}.get))
        for n, b in enumerate(two)
    ]
    (found,) = why(text, threads, hung=True).findings
    assert found.kind == "cycle"
    assert "t1 may come to it at prog.py:3" in found.text
