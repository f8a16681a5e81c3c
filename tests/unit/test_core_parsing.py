"""Parsing in several threads: a collection inside of one parse lets another thread parse."""

from __future__ import annotations

import ast
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness.core import parsing
from harness.core.parsing import parse

BIG = "\n".join(f"def f{index}(a):\n    return g(a, [1, {{'x': (a.b.c[0])}}])" for index in range(1500))


@contextmanager
def during_collections(act: Callable[[], object]) -> Iterator[list[int]]:
    """Does `act` in the midst of every collection; yields a list that grows by one each time."""
    times: list[int] = []
    busy = False

    def callback(phase: str, info: dict[str, int]) -> None:
        nonlocal busy
        if not busy:
            busy = True
            times.append(1)
            act()
            busy = False

    gc.callbacks.append(callback)
    try:
        yield times
    finally:
        gc.callbacks.remove(callback)


def run_in_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a parse runs no collection on this Python")
def test_the_interpreter_fails_where_another_thread_parses_in_between() -> None:
    def several() -> None:
        for _ in range(20):
            ast.parse(BIG)

    with during_collections(lambda: run_in_thread(lambda: ast.parse("x = 1"))), pytest.raises(SystemError, match="mismatch"):
        several()


def test_a_parse_survives_others_that_come_between() -> None:
    left = 3

    def sometimes() -> None:
        nonlocal left
        if left:
            left -= 1
            run_in_thread(lambda: ast.parse("x = 1"))

    for _ in range(20):
        left = 3
        with during_collections(sometimes):
            assert len(parse(BIG).body) == 1500


def test_a_collection_that_parses_does_not_lock_itself_out() -> None:
    done = threading.Event()

    def parses() -> None:
        with during_collections(lambda: parse("x = 1")):
            parsing._turn.lock.acquire()
            gc.collect()
            parsing._turn.lock.release()
        done.set()

    threading.Thread(target=parses, daemon=True).start()
    assert done.wait(60)


def test_our_threads_take_turns() -> None:
    with parsing._turn.lock:
        thread = threading.Thread(target=lambda: parse("x = 1"))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(60)
    assert not thread.is_alive()


def test_interrupted_every_time_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def always(text: str) -> ast.Module:
        tries.append(text)
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(ast, "parse", always)
    with pytest.raises(SystemError, match="mismatch"):
        parse("x = 1")
    assert len(tries) == parsing._TRIES


def test_bad_text_is_a_syntax_error_at_once() -> None:
    with pytest.raises(SyntaxError):
        parse("def")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_in_the_midst_can_parse() -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with parsing._turn.lock:
            held.set()
            over.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    child = os.fork()
    if not child:
        took = parsing._turn.lock.acquire(timeout=20)
        os._exit(0 if took else 1)
    over.set()
    holder.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
