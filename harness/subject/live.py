"""This process's own threads as `harness.core.stuck` sees them: frames, local variables, the objects themselves.

For the moment of a hang only, but for `time_limit`. No code of the program is run: attributes are read from instance
dictionaries and slots, never through properties or `__getattr__`.
"""

from __future__ import annotations

import itertools
import linecache
import re
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from types import CodeType, FrameType, MemberDescriptorType
from typing import Any

from harness.core.stuck.cpu import asleep, cpu_ns
from harness.core.stuck.diagnose import diagnose
from harness.core.stuck.source import Sources
from harness.core.stuck.views import Diagnosis, Frame, ThreadView, Value
from harness.core.stuck.waits import machinery, spot
from harness.core.waitgraph import Edge

BETWEEN_LOOKS_S = 0.3
_OWNER = re.compile(r"owner=(\d+)")
_MISSING = object()
Name = Callable[[int], str]
"""A thread's name by its ident, of one that has ended too; "" when it is not known."""


class Live:
    """An object of this process."""

    def __init__(self, value: object, name_of: Name) -> None:
        self.value = value
        self._name_of = name_of

    @property
    def key(self) -> Hashable:
        """Its address."""
        return id(self.value)

    @property
    def kind(self) -> str:
        """Name of its type."""
        return type(self.value).__name__

    def attribute(self, name: str) -> Live | None:
        """From its dictionary, a slot, or a plain value of its class."""
        found = _read(self.value, name)
        return None if found is _MISSING else Live(found, self._name_of)

    def item(self, index: Value) -> Live | None:
        """Of a list, tuple or dictionary, by a plain index."""
        at = getattr(index, "value", None)
        if type(self.value) in (list, tuple) and type(at) is int:
            items: Any = self.value
            return Live(items[at], self._name_of) if -len(items) <= at < len(items) else None
        if type(self.value) is dict and type(at) in (int, str):
            found = self.value.get(at, _MISSING)
            return None if found is _MISSING else Live(found, self._name_of)
        return None

    def fact(self, name: str) -> Any:
        """See `harness.core.stuck.views.Value`."""
        if name in ("owner", "owner name"):
            owner = self._owner()
            return owner if name == "owner" or not owner else self._name_of(owner) or None
        if name == "text":
            return repr(self.value) if type(self.value) in (str, int, float) else None
        inside = {"parties": "_parties", "name": "name", "ident": "_ident"}.get(name)
        found = _MISSING if inside is None else _read(self.value, inside)
        return found if type(found) in (int, str) else None

    def _owner(self) -> int | None:
        """Of an RLock, by its repr; of a condition, its lock's; of a module's lock, as it says."""
        if type(self.value).__name__ == "_ModuleLock":
            owner = _read(self.value, "owner")
            return owner if type(owner) is int else None
        lock = _read(self.value, "_lock") if isinstance(self.value, threading.Condition) else self.value
        found = _OWNER.search(repr(lock)) if type(lock) is type(threading.RLock()) else None
        return (int(found[1]) or None) if found else None


def _read(value: object, name: str) -> Any:
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        own = {}
    if type(own) is dict and name in own:
        return own[name]
    for base in (value, *value.__mro__) if isinstance(value, type) else type(value).__mro__:
        found = vars(base).get(name, _MISSING)
        if isinstance(found, MemberDescriptorType):
            try:
                return found.__get__(value)
            except AttributeError:
                return _MISSING
        if found is not _MISSING:
            return _MISSING if hasattr(type(found), "__get__") else found
    return _MISSING


def _span(code: CodeType, offset: int) -> tuple[int, int, int, int] | None:
    if offset < 0:
        return None
    found = next(itertools.islice(code.co_positions(), offset // 2, None), None)
    if found is None or any(part is None for part in found):
        return None
    first, last, column, end = found
    return (first or 0, last or 0, column or 0, end or 0)


def frames_of(frame: FrameType | None, name_of: Name) -> list[Frame]:
    """A stack, innermost first."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append(
            Frame(
                code.co_qualname.replace(".<locals>", ""),
                code.co_filename,
                frame.f_lineno or code.co_firstlineno,
                _names(frame, name_of),
                _span(code, frame.f_lasti),
            )
        )
        frame = frame.f_back
    return found


def _names(frame: FrameType, name_of: Name) -> Callable[[str], Value | None]:
    def look(name: str) -> Value | None:
        for space in (frame.f_locals, frame.f_globals):
            if name in space:
                return Live(space[name], name_of)
        return None

    return look


def read_file(file: str) -> str | None:
    """Source by a name on the stack, also of frozen modules and zip files."""
    lines = linecache.getlines(file)
    return "".join(lines) if lines else None


def threads_now(name_of: Name, leave_out: Iterable[int], pause_s: float = BETWEEN_LOOKS_S) -> list[ThreadView]:
    """All threads but some, looked at twice, `pause_s` seconds apart."""
    without = set(leave_out)
    began = time.monotonic()
    native = {thread.ident: thread.native_id for thread in threading.enumerate()}
    used = cpu_ns("self", native.values())
    first = {ident: _place(frame) for ident, frame in sys._current_frames().items()}
    time.sleep(pause_s)
    known = {thread.ident: thread.name for thread in threading.enumerate()}
    using = cpu_ns("self", native.values())
    seconds = time.monotonic() - began
    return [
        ThreadView(
            name_of(ident) or known.get(ident) or f"thread {ident}",
            ident,
            frames_of(frame, name_of),
            still=first.get(ident) == _place(frame),
            asleep=asleep(used, using, native.get(ident), seconds),
        )
        for ident, frame in sys._current_frames().items()
        if ident not in without
    ]


def _place(frame: FrameType | None) -> tuple[tuple[int, int], ...]:
    """Where a thread is in code other than that of locks and queues, which a wait that polls leaves and enters."""
    found = []
    while frame is not None and machinery(frame.f_code.co_filename):
        frame = frame.f_back
    while frame is not None:
        found.append((id(frame), frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def time_limit(ident: int) -> float | None:
    """Seconds after which the wait that a thread stands in ends by itself: infinite when not known, None for no such limit.

    It asks for variables of the standard library's own frames alone: up to Python 3.12 a frame that was asked keeps what its
    variables were, and a program's may be large.
    """
    frames = [
        frame if machinery(frame.file) else replace(frame, names=lambda _name: None)
        for frame in frames_of(sys._current_frames().get(ident), lambda _ident: "")
    ]
    at = spot(ThreadView("", ident, frames), Sources(read_file))
    return None if at is None else at.limit


def explain_hang(name_of: Name, edges: list[Edge], leave_out: Iterable[int] = ()) -> Diagnosis:
    """Why this process does not go on. Takes `BETWEEN_LOOKS_S` and the time to parse what is on the stacks."""
    threads = threads_now(name_of, {threading.get_ident(), *leave_out})
    return diagnose(threads, read_file, edges, hung=True)
