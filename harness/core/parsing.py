"""Parsing Python where several threads parse at once."""

from __future__ import annotations

import ast
import os
import threading

_TRIES = 20
"""The other threads' parses are not ours to hold off; each try meets one of them with a chance well below one half."""


class _Turn:
    """One parse at a time; reentrant, since a collection inside of a parse may run a finalizer that parses."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def renew(self) -> None:
        """In a forked child, where the thread that held it is gone."""
        self.lock = threading.RLock()


_turn = _Turn()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turn.renew)


def parse(text: str) -> ast.Module:
    """`ast.parse`, made safe for threads on Python 3.11.

    There the depth of the tree being built is counted per interpreter, not per thread. A garbage collection in the
    middle of it may let another thread in; when that one parses too, the first ends with `SystemError: AST constructor
    recursion depth mismatch` though nothing is wrong with its text (compare python/cpython#106905).

    Raises:
        SyntaxError: as `ast.parse`.
        ValueError: as `ast.parse`.
        SystemError: other threads of the process came between every time.
    """
    for tries_left in reversed(range(_TRIES)):
        with _turn.lock:
            try:
                return ast.parse(text)
            except SystemError:
                if not tries_left:
                    raise
    raise AssertionError("unreachable")
