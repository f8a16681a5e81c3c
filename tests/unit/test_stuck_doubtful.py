"""What may end by itself, and locks that are taken in ways that a stack does not show for certain: nobody is blamed."""

from __future__ import annotations

import ast

import pytest
from test_stuck import Thing, frame, inside, prog, thread, why

from harness.core.stuck.acquired import put_anew, surely_made
from harness.core.stuck.diagnose import diagnose
from harness.core.stuck.views import Frame, ThreadView

BUFFER = prog(
    """
    mutex = threading.Lock()
    filled = threading.Condition(mutex)
    def consume():
        with mutex:
            while not items:
                filled.wait()
    def produce():
        with mutex:
            filled.notify()
    def work():
        with mutex:
            compute()
    """
)


def library(function: str, module: str, part: int = 1) -> Frame:
    return Frame(function, f"/usr/lib/python3.11/{module}.py", part, {}.get)


@pytest.mark.parametrize("known", [True, False])
def test_who_waits_in_a_condition_has_given_up_the_lock_it_was_made_with(known: bool) -> None:
    """By the object where it is known, else by the line that makes the condition."""
    mutex, filled = (Thing(1), Thing(2, "Condition", attributes={"_lock": Thing(1)})) if known else (Thing("m"), Thing("f"))
    names = {"mutex": mutex, "filled": filled}
    waiting = inside("Condition.wait", "threading", self=filled)
    consumer = thread("consumer", 1, waiting, frame(BUFFER, "consume", "wait()", **names))
    producer = thread("producer", 2, Frame("produce", "/app/prog.py", 8, names.get))
    worker = thread("worker", 3, frame(BUFFER, "work", "compute()", **names), still=False)
    found = why(BUFFER, [consumer, producer, worker])
    assert not found.findings
    waits = {wait.thread.name: wait for wait in found.waits}
    assert waits["producer"].helpers == {3: "took it at prog.py:11"}


MAYBE = prog(
    """
    def skip():
        if not lock.acquire(blocking=False):
            with stats:
                pass
            return
    def never():
        if need:
            lock.acquire()
        with stats:
            pass
    def lets_go():
        lock.acquire()
        unlock(lock)
        with stats:
            pass
    def renames():
        lock.acquire()
        lock = other
        with stats:
            pass
    def indexes():
        with locks[at]:
            at += 1
            with stats:
                pass
    def holds():
        with stats:
            with lock:
                work()
    def takes():
        lock.acquire()
        with stats:
            pass
    """
)


@pytest.mark.parametrize("function", ["skip", "never", "lets_go", "renames", "indexes"])
def test_a_lock_that_a_function_may_not_hold_makes_no_deadlock_beside_who_does(function: str) -> None:
    lock, stats = Thing(1), Thing(2)
    names = {"lock": lock, "stats": stats, "at": Thing(9, "int", {"text": "1"})}
    names["locks"] = Thing(8, "list", attributes={"1": lock})
    start = MAYBE[: MAYBE.index(f"def {function}")].count("\n")
    at = next(n for n, line in enumerate(MAYBE.splitlines(), 1) if n > start and "with stats" in line)
    maybe = thread("maybe", 1, Frame(function, "/app/prog.py", at, names.get))
    wants = thread("wants", 2, frame(MAYBE, "holds", "with lock:", **names))
    true = thread("true", 3, frame(MAYBE, "holds", "work()", **names), still=False)
    assert not why(MAYBE, [maybe, wants, true]).findings
    taker = thread("taker", 1, Frame("takes", "/app/prog.py", MAYBE.count("\n") - 1, names.get))
    (found,) = why(MAYBE, [taker, wants]).findings
    assert found.kind == "cycle", "and one that does hold it is in one"


def test_of_two_who_are_both_seen_to_have_taken_a_lock_neither_is_sure_to() -> None:
    lock, stats = Thing(1), Thing(2)
    names = {"lock": lock, "stats": stats}
    at = MAYBE.count("\n") - 1
    first, second = (thread(f"t{ident}", ident, Frame("takes", "/app/prog.py", at, names.get)) for ident in (1, 2))
    wants = thread("wants", 3, frame(MAYBE, "holds", "with lock:", **names))
    wait = next(wait for wait in why(MAYBE, [first, second, wants]).waits if wait.thread is wants)
    assert wait.helpers == {1: f"may hold it, taken at prog.py:{at - 1}", 2: f"may hold it, taken at prog.py:{at - 1}"}


@pytest.mark.parametrize(
    ("text", "line", "sure"),
    [
        ("l.acquire()\nx()", 2, True),
        ("y = 1; l.acquire()\nx()", 2, True),
        ("l.acquire(timeout=1)\nx()", 2, False),
        ("ok = l.acquire()\nx()", 2, False),
        ("if l.acquire(timeout=1):\n    x()\nz()", 2, True),
        ("if l.acquire(timeout=1):\n    x()\nz()", 3, False),
        ("if not l.acquire(False):\n    return\nx()", 3, True),
        ("if not l.acquire(False):\n    y()\nx()", 3, False),
        ("if not l.acquire(False):\n    y()\nelse:\n    x()", 4, True),
        ("while not l.acquire(timeout=1):\n    y()\nx()", 3, False),
        ("if need:\n    l.acquire()\n    x()", 3, True),
        ("if need:\n    l.acquire()\nx()", 3, False),
        ("for i in r:\n    l.acquire()\n    x()", 3, True),
        ("try:\n    l.acquire()\n    x()\nfinally:\n    y()", 3, True),
        ("try:\n    y()\nexcept E:\n    l.acquire()\nx()", 5, False),
        ("with z:\n    l.acquire()\nx()", 3, True),
        ("match v:\n    case 1:\n        l.acquire()\n        x()", 4, True),
        ("match v:\n    case 1:\n        l.acquire()\n    case 2:\n        x()", 5, False),
    ],
)
def test_whether_a_call_above_a_line_has_been_made(text: str, line: int, sure: bool) -> None:
    tree = ast.parse(text)
    call = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "acquire"
    )
    assert surely_made(call, tree.body, line) is sure


@pytest.mark.parametrize(
    ("expression", "since", "anew"),
    [("locks[i]", "i += 1", True), ("self.lock", "self.lock = Lock()", True), ("self.lock", "self.count = 1", False),
     ("a", "for a in b: pass", True), ("a", "a.b = 1", False)],
)  # fmt: skip
def test_whether_a_name_means_another_object_since(expression: str, since: str, anew: bool) -> None:
    assert put_anew(ast.parse(expression, mode="eval").body, ast.parse(since).body) is anew


WAITS = prog(
    """
    def wait():
        stop.wait()
    def end(number, frame):
        finish()
    def finish():
        stop.set()
    def idle():
        work.get()
    """
)


def waiter(*frames: Frame) -> ThreadView:
    return thread("main", 1, inside("Event.wait", "threading", self=Thing(5, "Event")), *frames)


def stands(text: str = WAITS) -> ThreadView:
    return waiter(frame(text, "wait", "stop.wait()", stop=Thing(5, "Event")))


@pytest.mark.parametrize(
    "frames",
    [
        [inside("Event.wait", "threading"), library("Timer.run", "threading")],
        [library("scheduler.run", "sched")],
        [library("EpollSelector.select", "selectors"), library("BaseServer.serve_forever", "socketserver")],
        [library("EpollSelector.select", "selectors"), library("BaseEventLoop.run_forever", "asyncio/base_events")],
        [library("_recv", "multiprocessing/connection"), library("Pool._handle_results", "multiprocessing/pool")],
    ],
    ids=["timer", "sched", "server", "loop", "pool"],
)
@pytest.mark.parametrize("hung", [False, True])
def test_a_thread_that_calls_back_may_end_any_wait(frames: list[Frame], hung: bool) -> None:
    found = why(WAITS, [stands(), thread("back", 2, *frames)], hung=hung)
    assert not found.findings
    assert next(wait for wait in found.waits if wait.thread.name == "main").outside
    assert why(WAITS, [stands()], hung=hung).findings, "without it nobody does"


@pytest.mark.parametrize(
    "given",
    ["signal.signal(signal.SIGTERM, end)", "signal.signal(15, lambda *a: stop.set())", "loop.add_signal_handler(15, end)"],
)
def test_a_signal_s_handler_may_end_a_wait(given: str) -> None:
    text = f"{WAITS}{given}\n"
    worker = thread("worker", 2, inside("Queue.get", "queue", self=Thing(7, "Queue")), frame(text, "idle", "work.get()"))
    assert not why(text, [stands(text), worker]).findings, "a service that waits for its end, and a worker for work"
    assert why(f"{WAITS}signal.signal(15, other)\n", [stands()]).findings


@pytest.mark.parametrize(
    "runner",
    [
        library("_ExecutorManagerThread.run", "concurrent/futures/process"),
        library("BaseEventLoop.run_forever", "asyncio/base_events"),
    ],
    ids=["processes", "loop"],
)
def test_a_future_may_be_brought_about_by_other_processes_or_a_loop(runner: Frame) -> None:
    text = prog("def ask():\n    future.result()\n")
    asks = thread("main", 1, inside("Future.result", "concurrent/futures/_base"), frame(text, "ask", "result()"))
    runs = thread("runs", 2, library("EpollSelector.select", "selectors"), runner)
    assert not why(text, [asks, runs]).findings
    assert why(text, [asks]).findings


def test_a_lock_that_other_processes_share_may_be_theirs() -> None:
    text = prog("def enter(self):\n    return self._semlock.__enter__()\n")
    lock = Thing(3, "SemLock")
    own = Thing(4, "Lock", attributes={"_semlock": lock})
    one = thread("main", 1, frame(text, "enter", "__enter__()", self=own))
    for hung in (False, True):
        found = why(text, [one], hung=hung)
        assert not found.findings
        assert [wait.outside for wait in found.waits] == [True]


def test_a_holder_that_ended_is_told_though_others_work_and_an_unknown_one_is_not() -> None:
    text = prog("def use():\n    with lock:\n        pass\ndef work():\n    compute()\n")
    works = thread("works", 2, frame(text, "work", "compute()"), still=False)
    dead = Thing(1, "RLock", {"owner": 99, "owner name": "writer"})
    (found,) = why(text, [thread("uses", 1, frame(text, "use", "with lock", lock=dead)), works]).findings
    assert "its owner, writer, has ended" in found.text
    joiner = thread("main", 3, inside("Thread.join", "threading", self=Thing(6, "Thread", {"ident": 1})))
    unknown = thread("uses", 1, frame(text, "use", "with lock", lock=Thing(1)))
    assert not why(text, [unknown, works, joiner]).findings, "who works may have taken it in a function that has ended"
    assert why(text, [unknown, joiner]).findings


def test_a_barrier_as_a_thread_s_own_target_is_no_idle_wait() -> None:
    barrier = Thing(2, "Barrier", {"parties": 3})
    ends = [inside("Barrier.wait", "threading", self=barrier), library("Thread.run", "threading")]
    (found,) = why("", [thread("b0", 1, *ends), thread("b1", 2, *ends)]).findings
    assert "2 of 3 parties wait in it (b0, b1)" in found.text


def test_what_an_event_takes_for_its_own_wait_is_held_by_nobody() -> None:
    threading_py = "class Event:\n    def wait(self):\n        with self._cond:\n            self._cond.wait()\n"
    text = prog("def wait():\n    e.wait()\ndef put():\n    m.acquire()\n    e.set()\n")
    event = Thing(5, "Event", attributes={"_cond": Thing(6, "Condition")})
    file = "/usr/lib/python3.11/threading.py"
    waits = thread(
        "waits", 1, Frame("Condition.wait", file, 1, {"self": Thing(6, "Condition")}.get),
        Frame("Event.wait", file, 4, {"self": event}.get), frame(text, "wait", "e.wait()", e=event),
    )  # fmt: skip
    puts = thread("puts", 2, frame(text, "put", "m.acquire()", m=Thing("m", ""), e=event))
    found = diagnose([waits, puts], {"/app/prog.py": text, file: threading_py}.get)
    assert not [finding for finding in found.findings if finding.kind == "cycle"]
    assert not next(wait for wait in found.waits if wait.thread is puts).helpers


def test_who_waits_for_a_time_or_a_message_is_in_no_stuck_call() -> None:
    text = prog("def ask():\n    server.join()\n")
    joins = inside("Thread.join", "threading", self=Thing(6, "Thread", {"ident": 2}))
    asks = thread("main", 1, joins, frame(text, "ask", "join()"))
    stack = [library("EpollSelector.select", "selectors"), library("BaseServer.serve_forever", "socketserver")]
    serves = thread("serves", 2, *stack, asleep=True)
    assert not why(text, [asks, serves]).findings


def test_a_library_s_thread_that_others_join_and_that_is_in_a_call_is_told() -> None:
    """`Thread(target=connection.recv)`: it calls nobody back, and who joins it waits for that call."""
    text = prog("def ask():\n    reader.join()\n")
    joins = inside("Thread.join", "threading", self=Thing(6, "Thread", {"ident": 2}))
    reads = thread("reads", 2, library("Connection.recv", "multiprocessing/connection"), asleep=True)
    (found,) = why(text, [thread("main", 1, joins, frame(text, "ask", "join()")), reads]).findings
    assert (found.kind, found.threads) == ("native", (2, 1))
