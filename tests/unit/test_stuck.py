"""Why threads do not go on, read from stacks and source: each rule on threads made by hand."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.core.stuck.diagnose import diagnose
from harness.core.stuck.source import Sources, awaited, calls, held
from harness.core.stuck.views import Diagnosis, Finding, Frame, ThreadView, Value
from harness.core.waitgraph import Edge

FILE = "/app/prog.py"
STDLIB = {"/usr/lib/python3.11/threading.py": "", "/usr/lib/python3.11/queue.py": ""}


@dataclass(frozen=True)
class Thing:
    """An object: its key, type, and facts."""

    key: Hashable
    kind: str = "lock"
    facts: dict[str, Any] = field(default_factory=dict, hash=False)
    attributes: dict[str, Thing] = field(default_factory=dict, hash=False)

    def attribute(self, name: str) -> Value | None:
        return self.attributes.get(name)

    def item(self, index: Value) -> Value | None:
        return self.attributes.get(str(index.fact("text")))

    def fact(self, name: str) -> Any:
        return self.facts.get(name)


def prog(text: str) -> str:
    return textwrap.dedent(text).lstrip()


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


def frame(text: str, function: str, part: str, span: tuple[int, int, int, int] | None = None, **names: Thing) -> Frame:
    return Frame(function, FILE, line_of(text, part), names.get, span)


def inside(function: str, module: str, **names: Thing) -> Frame:
    return Frame(function, f"/usr/lib/python3.11/{module}.py", 1, names.get)


def thread(name: str, ident: int, *frames: Frame, still: bool = True, **more: Any) -> ThreadView:
    return ThreadView(name, ident, list(frames), still=still, **more)


def why(text: str, threads: Sequence[ThreadView], known: Sequence[Edge] = (), hung: bool = False) -> Diagnosis:
    return diagnose(threads, {FILE: text, **STDLIB}.get, known, hung=hung)


TWO = prog(
    """
    def take(first, second):
        with first:
            with second:
                work()
    """
)


def test_two_locks_in_opposite_order_are_a_cycle_whose_members_and_places_are_named() -> None:
    a, b = Thing(1), Thing(2)
    one = thread("one", 11, frame(TWO, "take", "with second", first=a, second=b))
    two = thread("two", 12, frame(TWO, "take", "with second", first=b, second=a))
    (found,) = why(TWO, [one, two]).findings
    assert found.kind == "cycle"
    assert set(found.threads) == {11, 12}
    assert "one waits for lock `second` (prog.py:3), which two took at prog.py:2" in found.text


def test_a_thread_that_went_on_between_two_looks_is_in_no_cycle() -> None:
    a, b = Thing(1), Thing(2)
    one = thread("one", 11, frame(TWO, "take", "with second", first=a, second=b))
    two = thread("two", 12, frame(TWO, "take", "with second", first=b, second=a), still=False)
    assert why(TWO, [one, two]).findings == ()


def test_a_lock_that_is_held_by_a_thread_that_works_is_no_finding() -> None:
    a = Thing(1)
    text = prog("def f(a):\n    with a:\n        work()\n\ndef work():\n    x = 1\n")
    holder = thread("holder", 11, frame(text, "work", "x = 1"), frame(text, "f", "        work()", a=a), still=False)
    waiter = thread("waiter", 12, frame(text, "f", "with a", a=a))
    found = why(text, [holder, waiter], hung=True)
    assert found.findings == ()
    assert found.waits[0].helpers == {11: "took it at prog.py:2"}


GRAPHS = "/env/site-packages/torch/_inductor/cudagraph_trees.py"
TREES = prog(
    """
    def get_container(device_index):
        lock = get_obj(local, "tree_manager_locks")[device_index]
        with lock:
            return container_dict[device_index]

    class TreeManagerContainer:
        def get_tree_manager(self):
            with self.lock:
                self.tree_manager = CUDAGraphTreeManager(self.device_index)

    def record(self):
        with graph_capture_lock, torch.cuda.device(0):
            return model()
    """
)


@pytest.mark.parametrize(
    ("function", "line", "inside", "names", "attribute"),
    [
        ("get_container", "with lock", "return container_dict", ("lock",), "tree_manager_locks"),
        ("get_tree_manager", "with self", "self.tree_manager =", ("self",), "TreeManagerContainer.lock"),
        ("record", "with graph", "return model()", ("graph_capture_lock",), "graph_capture_lock"),
    ],
)
def test_the_locks_of_cuda_graphs_are_named_by_their_attribute(
    function: str, line: str, inside: str, names: tuple[str, ...], attribute: str
) -> None:
    """As torch 2.11 and 2.13 write them; one thread waits with the program's own lock, which the holder wants."""
    text = prog("def call(mine):\n    with mine:\n        graphed()\n\ndef model(mine):\n    with mine:\n        pass\n")
    mine, lock = Thing(1), Thing(2)
    names_of = {name: Thing(3, "TreeManagerContainer", attributes={"lock": lock}) if name == "self" else lock for name in names}

    def at(part: str) -> Frame:
        return Frame(function, GRAPHS, line_of(TREES, part), names_of.get)

    holder = thread("holder", 11, Frame("model", FILE, 6, {"mine": mine}.get), at(inside))
    waiter = thread("waiter", 12, at(line), frame(text, "call", "graphed()", mine=mine))
    (found,) = diagnose([holder, waiter], {FILE: text, GRAPHS: TREES}.get).findings
    assert found.kind == "cycle"
    assert f"waiter waits for torch's CUDA-graph lock `{attribute}` (cudagraph_trees.py:" in found.text


@pytest.mark.parametrize(("span", "awaits"), [((2, 2, 9, 10), "a"), ((2, 2, 12, 13), "b")])
def test_of_two_locks_on_a_line_the_instruction_says_which(span: tuple[int, int, int, int], awaits: str) -> None:
    text = prog("def f(a, b):\n    with a, b:\n        pass\n")
    at = frame(text, "f", "with a", span)
    block = Sources({FILE: text}.get).block(at)
    assert block is not None
    (call,) = awaited(block, at)
    assert getattr(call.node, "id", "") == awaits
    assert [getattr(h.expression, "id", "") for h in held(block, at, call.node)] == (["a"] if awaits == "b" else [])


def test_of_two_locks_on_a_line_the_one_that_another_holds_is_meant() -> None:
    text = prog("def f(a, b):\n    with a, b:\n        pass\n\ndef g(b, a):\n    with b:\n        with a:\n            pass\n")
    a, b = Thing(1), Thing(2)
    one = thread("one", 11, frame(text, "f", "with a, b", a=a, b=b))
    two = thread("two", 12, frame(text, "g", "        with a:", a=a, b=b))
    waits = {wait.thread.name: wait.what for wait in why(text, [one, two]).waits}
    assert waits["one"] == "lock `b` (prog.py:2)"


def test_an_acquire_without_a_release_holds_and_one_with_does_not() -> None:
    text = prog(
        """
        def f(a, b):
            a.acquire()
            b.acquire()
            b.release()
            work()
        """
    )
    at = frame(text, "f", "work()")
    block = Sources({FILE: text}.get).block(at)
    assert block is not None
    assert [(getattr(h.expression, "id", ""), h.line, h.sure) for h in held(block, at)] == [("a", 2, False)]


def test_a_condition_that_is_waited_in_is_not_held() -> None:
    text = prog("def f(c):\n    with c:\n        c.wait()\n\ndef g(c):\n    with c:\n        c.notify()\n")
    c = Thing(1, "Condition")
    waiter = thread("waiter", 11, inside("Condition.wait", "threading", self=c), frame(text, "f", "c.wait", c=c))
    enter = inside("Condition.__enter__", "threading", self=c)
    other = thread("other", 12, enter, Frame("g", FILE, 6, {"c": c}.get))
    found = why(text, [waiter, other], hung=True)
    waits = {wait.thread.name: wait for wait in found.waits}
    assert waits["other"].helpers == {}
    assert waits["waiter"].helpers == {12: "ends such a wait at prog.py:7"}


def test_a_reentrant_lock_of_a_thread_that_ended_names_it() -> None:
    text = prog("def f(a):\n    with a:\n        pass\n")
    a = Thing(1, "RLock", {"owner": 99, "owner name": "writer"})
    (found,) = why(text, [thread("reader", 11, frame(text, "f", "with a", a=a))], hung=True).findings
    assert "its owner, writer, has ended without letting go" in found.text


def test_a_plain_lock_taken_twice_is_a_cycle_of_one_and_a_reentrant_one_is_not() -> None:
    text = prog("def f(a):\n    with a:\n        g(a)\n\ndef g(a):\n    with a:\n        pass\n")
    for kind, expected in (("lock", ["cycle"]), ("RLock", ["nobody"])):
        a = Thing(1, kind)
        one = thread("one", 11, Frame("g", FILE, 6, {"a": a}.get), frame(text, "f", "g(a)", a=a))
        assert [finding.kind for finding in why(text, [one], hung=True).findings] == expected


PUTS = prog(
    """
    def producer(q):
        for item in range(9):
            q.put(item)

    def consumer(q):
        while True:
            take(q)

    def take(q):
        return q.get()

    def main(q):
        q.put(0)
        worker.join()
    """
)


def test_who_takes_from_a_full_queue_is_found_through_a_call_of_the_same_file() -> None:
    q = Thing(1, "Queue")
    producer = thread("producer", 11, inside("Queue.put", "queue", self=q), frame(PUTS, "producer", "q.put(item)", q=q))
    consumer = thread("consumer", 12, frame(PUTS, "consumer", "take(q)", q=q), still=False)
    wait = why(PUTS, [producer, consumer]).waits[0]
    assert wait.kind == "queue.put"
    assert wait.helpers == {12: "takes from it at prog.py:10"}


def test_code_that_was_passed_already_helps_nobody() -> None:
    q = Thing(1, "Queue")
    taker = thread("taker", 11, inside("Queue.get", "queue", self=q), frame(PUTS, "take", "q.get", q=q))
    main = thread(
        "MainThread",
        12,
        inside("Thread.join", "threading", self=Thing(5, "Thread", {"ident": 11})),
        frame(PUTS, "main", "worker.join", q=q),
    )
    (found,) = why(PUTS, [taker, main]).findings
    assert found.kind == "nobody"
    assert "no living thread's code puts into it" in found.text
    assert "prog.py:13, in main" in found.text


def test_a_loop_goes_round_to_what_stands_above() -> None:
    text = prog("def f(q, r):\n    while True:\n        q.put(1)\n        r.get()\n    q.put(2)\n")
    block = Sources({FILE: text}.get).block(frame(text, "f", "r.get"))
    assert block is not None
    assert [call.line for call in calls(block, frozenset({"put"}), after=4)] == [3, 5]


def test_one_producer_that_works_is_enough_for_a_queue() -> None:
    text = prog(
        """
        def take(q, a):
            with a:
                q.get()

        def make(q, a):
            while True:
                with a:
                    pass
                q.put(1)
        """
    )
    q, a = Thing(1, "Queue"), Thing(2)
    taker = thread("taker", 11, inside("Queue.get", "queue", self=q), frame(text, "take", "q.get", q=q, a=a))
    blocked = thread("blocked", 12, Frame("make", FILE, 7, {"q": q, "a": a}.get))
    works = thread("works", 13, Frame("make", FILE, 9, {"q": q, "a": a}.get), still=False)
    assert why(text, [taker, blocked, works]).findings == ()
    assert [finding.kind for finding in why(text, [taker, blocked]).findings] == ["cycle"]


def test_a_barrier_says_how_many_are_in_it_and_that_nobody_comes() -> None:
    text = prog("def f(b):\n    while True:\n        b.wait()\n")
    b = Thing(1, "Barrier", {"parties": 3})
    two = [
        thread(f"rank-{i}", 11 + i, inside("Barrier.wait", "threading", self=b), frame(text, "f", "b.wait", b=b))
        for i in range(2)
    ]
    (found,) = why(text, two, hung=True).findings
    assert "2 of 3 parties wait in it (rank-0, rank-1), and no other living thread comes to it" in found.text


def test_all_wait_in_the_end_for_a_native_call() -> None:
    text = prog("def read(a):\n    with a:\n        os.read(fd, 1)\n\ndef use(a):\n    with a:\n        pass\n")
    a = Thing(1)
    reader = thread("reader", 11, frame(text, "read", "os.read", a=a), native=("read",))
    user = thread("user", 12, Frame("use", FILE, 6, {"a": a}.get))
    (found,) = why(text, [reader, user]).findings
    assert found.kind == "native"
    assert found.threads[0] == 11
    assert "`os.read(fd, 1)` in read (prog.py:3), in read; user waits for it" in found.text


def test_who_sleeps_with_the_interpreter_lock_is_named_before_all_else() -> None:
    text = prog("def f(a):\n    lib.sleep(9)\n")
    holder = thread("holder", 11, frame(text, "f", "lib.sleep"), owns_gil=True, asleep=True, native=("nanosleep",))
    (found,) = why(text, [holder, thread("other", 12, frame(text, "f", "lib.sleep"))]).findings
    assert found.kind == "gil"
    assert "holder holds the interpreter lock in a native call that has not returned: f (prog.py:2)" in found.text


def test_a_thread_that_computes_with_the_interpreter_lock_is_wrong_only_in_a_hang() -> None:
    text = prog("def f(a):\n    lib.sleep(9)\n")
    holder = thread("holder", 11, frame(text, "f", "lib.sleep"), owns_gil=True, asleep=False)
    assert why(text, [holder]).findings == ()
    assert [finding.kind for finding in why(text, [holder], hung=True).findings] == ["gil"]


def test_a_thread_that_computes_waits_for_nothing_and_is_named_only_in_a_hang() -> None:
    text = prog("def f(a):\n    with a:\n        while spin(): pass\n\ndef g(a):\n    with a:\n        pass\n")
    a = Thing(1)
    spinner = thread("spinner", 11, frame(text, "f", "while spin", a=a), asleep=False)
    waiter = thread("waiter", 12, Frame("g", FILE, 6, {"a": a}.get), asleep=True)
    assert why(text, [spinner, waiter]).findings == ()
    (found,) = why(text, [spinner, waiter], hung=True).findings
    assert found.kind == "busy"
    assert "spinner computes" in found.text
    assert "waiter waits for it" in found.text
    at_lock = thread("one", 11, frame(text, "f", "with a", a=a), asleep=False)
    assert why(text, [at_lock]).waits == (), "it takes and leaves the lock all the time"


def test_a_wait_with_a_time_limit_is_wrong_only_where_the_process_is_known_to_hang() -> None:
    text = prog("def f(e):\n    while not e.wait(0.5):\n        pass\n")
    e = Thing(1, "Event")
    for limit, expected in ((Thing(2, "NoneType"), 1), (Thing(2, "float", {"text": "0.5"}), 0)):
        at = inside("Event.wait", "threading", self=e, timeout=limit)
        one = thread("one", 11, at, frame(text, "f", "e.wait", e=e))
        assert len(why(text, [one]).findings) == expected
        assert len(why(text, [one], hung=True).findings) == 1
    taking = prog("def f(a):\n    a.acquire(timeout=1)\n")
    (wait,) = why(taking, [thread("one", 11, frame(taking, "f", "a.acquire", a=Thing(1)))]).waits
    assert wait.timed


def test_a_program_that_came_to_its_end_names_the_thread_that_keeps_it() -> None:
    e = Thing(1, "Event")
    left = thread("left", 11, inside("Event.wait", "threading", self=e), inside("Thread.run", "threading"))
    main = thread("MainThread", 12, inside("_shutdown", "threading"))
    (found,) = why("", [left, main]).findings
    assert "MainThread has come to its end, and the process waits for its threads to end: left waits for event" in found.text


def test_nothing_is_claimed_of_a_wait_inside_of_a_library() -> None:
    text = prog("def f(pool):\n    pool.map(work, [1])\n")
    e = Thing(1, "Event")
    library = Frame("map", "/usr/lib/python3.11/multiprocessing/pool.py", 1)
    main = thread("MainThread", 11, inside("Event.wait", "threading", self=e), library, frame(text, "f", "pool.map"))
    found = why(text, [main])
    assert found.findings == ()
    assert found.waits[0].what == "event to be set (pool.py:1, from prog.py:2)"


def test_a_library_thread_that_waits_for_work_is_idle() -> None:
    q = Thing(1, "Queue")
    worker = thread(
        "worker",
        11,
        inside("Queue.get", "queue", self=q),
        Frame("_worker", "/usr/lib/python3.11/site-packages/pool/pool.py", 1),
    )
    found = why("", [worker], hung=True)
    assert found.waits[0].idle
    assert found.findings == ()


def test_a_compile_that_waits_for_autograd_s_thread_which_waits_for_the_compile_is_a_cycle() -> None:
    convert = prog("def compile_frame():\n    with compile_lock, modes():\n        inner()\n")
    lowering = prog("def compile_fx_backward():\n    from x import compile_lock\n    with compile_lock:\n        lower()\n")
    packages = "/usr/lib/python3.11/site-packages/torch"
    lock = Thing(("global", "convert_frame", "compile_lock"), "")
    engine = Frame("_engine_run_backward", f"{packages}/autograd/graph.py", 1)
    attender = thread(
        "attender", 11, engine, Frame("compile_frame", f"{packages}/_dynamo/convert_frame.py", 3, {"compile_lock": lock}.get),
        Frame("Thread._bootstrap", "/usr/lib/python3.11/threading.py", 1),
    )
    trainer = thread("trainer", 12, engine, Frame("Thread._bootstrap", "/usr/lib/python3.11/threading.py", 1))
    device = thread(
        "cuda:0", 13, Frame("compile_fx_backward", f"{packages}/_inductor/compile_fx.py", 3, {"compile_lock": lock}.get),
        Frame("CompiledFunction.backward", f"{packages}/_functorch/runtime.py", 1),
    )
    files = {f"{packages}/_dynamo/convert_frame.py": convert, f"{packages}/_inductor/compile_fx.py": lowering}
    (found,) = diagnose([attender, trainer, device], files.get).findings
    assert found.kind == "cycle"
    assert set(found.threads) == {11, 13}
    assert "cuda:0 waits for lock `compile_lock` (compile_fx.py:3), which attender took at convert_frame.py:2" in found.text
    assert "attender waits for autograd's engine" in found.text
    assert "cuda:0 runs a backward for the engine" in found.text


def test_what_is_known_for_certain_takes_the_place_of_what_was_inferred() -> None:
    text = prog("def f(a):\n    with a:\n        pass\n")
    one = thread("one", 11, frame(text, "f", "with a", a=Thing(1)))
    two = thread("two", 12, frame(text, "f", "with a", a=Thing(2)))
    edges = [Edge("one", "the strategy lock", "two"), Edge("two", "torch's compile lock", "one")]
    (found,) = why(text, [one, two], edges).findings
    assert found.kind == "cycle"
    assert "one waits for the strategy lock, held by two" in found.text


def test_from_outside_a_lock_known_by_name_alone_may_be_another_thread_s() -> None:
    text = prog("class P:\n    def dine(self):\n        with self.left:\n            with self.right:\n                pass\n")
    frames = []
    for number in range(2):
        own = Thing(number, "P", attributes={n: Thing(("attribute", number, n), "") for n in ("left", "right")})
        frames.append(frame(text, "dine", "with self.right", self=own))
    (found,) = why(text, [thread("p0", 11, frames[0]), thread("p1", 12, frames[1])]).findings
    assert found.kind == "cycle"
    assert "p1 may hold it (took `self.left` at prog.py:3)" in found.text


def test_a_bare_function_name_is_told_apart_by_its_class() -> None:
    text = prog("class Event:\n    def wait(self):\n        self.flag.wait()\n\nclass Lock:\n    def wait(self):\n        x()")
    sources = Sources({FILE: text}.get)
    assert sources.qualified(Frame("wait", FILE, 3)) == "Event.wait"
    assert sources.qualified(Frame("wait", FILE, 7)) == "Lock.wait"


@pytest.mark.parametrize("text", ["", "def f(:\n", "x = 1\n", None])
def test_source_that_is_missing_or_broken_is_no_error(text: str | None) -> None:
    at = Frame("f", FILE, 1, {"a": Thing(1)}.get)
    found = diagnose([ThreadView("one", 11, [at], still=True)], lambda file: text)
    assert found.findings == ()


def test_many_findings_are_told_as_the_first_few() -> None:
    many = Diagnosis((), tuple(Finding("nobody", f"thread {i} waits", (i,)) for i in range(7)))
    assert many.in_words().endswith("thread 4 waits; and 2 more")
    assert Diagnosis((), many.findings[:5]).in_words().endswith("thread 4 waits")
    assert Diagnosis((), ()).in_words() == ""
