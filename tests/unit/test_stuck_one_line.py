"""A `with` whose body stands on its line: what a thread there waits for, and what it holds."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from collections.abc import Callable

import pytest
from test_stuck import FILE, STDLIB, Thing, frame, inside, prog, thread, why

from harness.core.stuck.source import Sources, awaited, held
from harness.core.stuck.views import Diagnosis, Frame
from harness.subject.live import frames_of

STATS = prog(
    """
    def first(lock, stats):
        with lock:
            with stats.l: stats.n += 1

    def add(self, lock):
        with self.l:
            with lock:
                pass
    """
)


def words(found: Diagnosis) -> str:
    return "; ".join(finding.text for finding in found.findings)


@pytest.mark.parametrize("body", ["stats.n += 1", "stats.items.append(1)"])
@pytest.mark.parametrize(
    ("of_a", "says"),
    [
        (Thing(2), "which trainer-1 took at prog.py:6"),
        # A global, which from outside is known by its name alone.
        (Thing(("global", "prog", "l"), ""), "and trainer-1 may hold it (took `self.l` at prog.py:6)"),
    ],
    ids=("same-object", "known-by-name"),
)
def test_who_waits_at_a_with_of_one_line_does_not_hold_it_by_that_with(of_a: Thing, says: str, body: str) -> None:
    text = STATS.replace("stats.n += 1", body)
    lock, kept = Thing(1), Thing(2)
    stats, own = (Thing(number, "Stats", attributes={"l": each}) for number, each in ((3, of_a), (4, kept)))
    a = thread("trainer-0", 11, frame(text, "first", "with stats.l", lock=lock, stats=stats))
    b = thread("trainer-1", 12, Frame("add", FILE, 7, {"lock": lock, "self": own}.get))
    (one,) = why(text, [a, b]).findings
    assert one.kind == "cycle"
    assert set(one.threads) == {11, 12}
    assert f"trainer-0 waits for lock `stats.l` (prog.py:3), {says}" in one.text
    assert "trainer-1 waits for lock `lock` (prog.py:7), which trainer-0 took at prog.py:2" in one.text


def test_a_condition_that_is_entered_on_the_line_of_its_body_is_not_held() -> None:
    text = prog("def f(c):\n    with c: c.notify()\n\ndef g(c):\n    with c:\n        work()\n")
    c = Thing(1, "Condition")
    waiter = thread("waiter", 11, inside("Condition.__enter__", "threading", self=c), frame(text, "f", "with c: c.n", c=c))
    (alone,) = why(text, [waiter], hung=True).findings
    assert (alone.kind, alone.threads) == ("nobody", (11,))
    assert "may have it" not in alone.text, "it is in the condition's own code, so not in the body"
    holder = thread("holder", 12, Frame("g", FILE, 6, {"c": c}.get), still=False)
    (wait,) = why(text, [waiter, holder]).waits
    assert wait.helpers == {12: "took it at prog.py:5"}


CALLS = prog(
    """
    def outer(a, b):
        with a: inner(b)

    def inner(b):
        with b:
            pass

    def other(a, b):
        with b:
            with a:
                pass
    """
)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("lock", "other waits for lock `a` (prog.py:10), which one took at prog.py:2"),
        ("", "other waits for lock `a` (prog.py:10), and one may hold it, taken at prog.py:2"),
    ],
)
def test_a_call_from_the_body_holds_a_plain_lock_and_may_hold_what_is_not_known_to_be_one(kind: str, says: str) -> None:
    """To take a plain lock runs no Python code, so a deeper frame is the body's."""
    a, b = Thing(("global", "prog", "a"), kind), Thing(2)
    one = thread("one", 11, Frame("inner", FILE, 5, {"b": b}.get), frame(CALLS, "outer", "with a: inner", a=a, b=b))
    other = thread("other", 12, Frame("other", FILE, 10, {"a": a, "b": b}.get))
    (found,) = why(CALLS, [one, other]).findings
    assert found.kind == "cycle"
    assert says in found.text


def test_a_call_that_makes_a_later_item_does_not_hold_the_items_after_it_for_certain() -> None:
    text = CALLS.replace("with a: inner(b)", "with inner(b), a: pass")
    a, b = Thing(1), Thing(2)
    one = thread("one", 11, Frame("inner", FILE, 5, {"b": b}.get), frame(text, "outer", "with inner", a=a, b=b))
    other = thread("other", 12, Frame("other", FILE, 10, {"a": a, "b": b}.get))
    assert "which one took" not in words(why(text, [one, other], hung=True))


@pytest.mark.parametrize(("kind", "says"), [("lock", "which it itself took at"), ("", "and it itself may hold it, taken at")])
def test_a_lock_that_the_body_takes_again_is_found(kind: str, says: str) -> None:
    text = prog("def f(a):\n    with a: g(a)\n\ndef g(a):\n    with a:\n        pass\n")
    a = Thing(("global", "prog", "a"), kind)
    one = thread("one", 11, Frame("g", FILE, 5, {"a": a}.get), frame(text, "f", "with a: g", a=a))
    (found,) = why(text, [one]).findings
    assert found.text == f"one waits for lock `a` (prog.py:5), {says} prog.py:2"


def test_an_acquire_in_the_body_may_be_what_is_waited_in() -> None:
    """Only the line is known, of both threads."""
    text = prog("def f(a, b):\n    with a: b.acquire()\n")
    a, b = Thing(1), Thing(2)
    one = thread("one", 11, frame(text, "f", "with a", a=a, b=b))
    two = thread("two", 12, frame(text, "f", "with a", a=b, b=a))
    (found,) = why(text, [one, two]).findings
    assert "one waits for lock `b` (prog.py:2), and two may hold it, taken at prog.py:2" in found.text
    alone = why(text, [thread("one", 11, frame(text, "f", "with a", a=a, b=a))]).findings
    assert [finding.kind for finding in alone] == ["nobody"], "which of the two it is in is not known"
    assert "one may have it, and wait in what follows `with` on that line (prog.py:2)" in alone[0].text


def test_threads_that_stand_at_one_line_are_no_cycle_where_the_holder_is_gone() -> None:
    for line in ("with a: a.items.append(1)", "with a, b: pass"):
        text = prog(f"def f(a, b):\n    {line}\n")
        a, b = Thing(1), Thing(2)
        found = why(text, [thread(f"t{i}", 11 + i, frame(text, "f", "with a", a=a, b=b)) for i in range(2)]).findings
        assert {finding.kind for finding in found} == {"nobody"}, line


def test_a_with_over_several_lines_waits_on_its_first() -> None:
    """Up to Python 3.12: it has the line of the whole statement for it, whichever item it is."""
    text = prog("def f(a, b):\n    with b:\n        with (\n            a,\n        ):\n            pass\n")
    a, b = Thing(1), Thing(2)
    one = thread("one", 11, frame(text, "f", "        with (", a=a, b=b))
    two = thread("two", 12, frame(text, "f", "        with (", a=b, b=a))
    (found,) = why(text, [one, two]).findings
    assert found.kind == "cycle"
    assert "one waits for lock `a` (prog.py:3), which two took at prog.py:2" in found.text


LIVE = textwrap.dedent(
    """
    def enters(a, b):
        with a: b.acquire()
    """
)


@pytest.mark.parametrize(("taken", "holds"), [("a", []), ("b", ["a"])])
def test_in_this_process_the_instruction_tells_where_on_the_line_a_thread_is(taken: str, holds: list[str]) -> None:
    space: dict[str, object] = {}
    exec(compile(LIVE, FILE, "exec"), space)
    locks = {"a": threading.Lock(), "b": threading.Lock()}
    locks[taken].acquire()
    target = space["enters"]
    assert callable(target)
    stuck = threading.Thread(target=target, args=(locks["a"], locks["b"]), daemon=True)
    stuck.start()
    at = _stands_still(stuck, lambda: taken == "a" or locks["a"].locked())
    block = Sources({FILE: LIVE, **STDLIB}.get).block(at)
    assert block is not None
    (call,) = awaited(block, at)
    assert call.method == ("with" if taken == "a" else "acquire")
    found = held(block, at, call.base)
    assert [(getattr(hold.expression, "id", ""), hold.sure, hold.may) for hold in found] == [(n, True, False) for n in holds]
    locks[taken].release()
    stuck.join(30)
    assert not stuck.is_alive()


def _stands_still(stuck: threading.Thread, settled: Callable[[], bool]) -> Frame:
    """The thread's innermost frame, once its instruction has been the same for a while."""
    deadline, before, since = time.monotonic() + 30.0, -1, time.monotonic()
    while time.monotonic() < deadline:
        now = sys._current_frames().get(stuck.ident or 0)
        if now is None or now.f_code.co_filename != FILE or now.f_lasti != before or not settled():
            before = now.f_lasti if now is not None else -1
            since = time.monotonic()
        elif time.monotonic() - since > 0.2:
            return frames_of(now, lambda _: "")[0]
        time.sleep(0.01)
    raise AssertionError("it never stood still")
