"""What one thread waits in, from its stack: the standard library's waits by name, others by the line of source."""

from __future__ import annotations

import ast
import math
from collections.abc import Hashable
from dataclasses import dataclass

from .source import Call, Sources, awaited
from .views import Frame, ThreadView, Value

WAITS: dict[tuple[str, str], str] = {
    ("threading.py", "Condition.wait"): "condition",
    ("threading.py", "Condition.wait_for"): "condition",
    ("threading.py", "Condition.__enter__"): "lock",
    ("threading.py", "Condition._acquire_restore"): "lock",
    ("threading.py", "Event.wait"): "event",
    ("threading.py", "Barrier.wait"): "barrier",
    ("threading.py", "Barrier._wait"): "barrier",
    ("threading.py", "Semaphore.acquire"): "semaphore",
    ("threading.py", "Thread.join"): "join",
    ("threading.py", "Thread._wait_for_tstate_lock"): "join",
    ("threading.py", "_shutdown"): "exit",
    ("queue.py", "Queue.put"): "queue.put",
    ("queue.py", "Queue.get"): "queue.get",
    ("queue.py", "Queue.join"): "queue.join",
    ("futures/_base.py", "Future.result"): "future",
    ("futures/_base.py", "Future.exception"): "future",
    ("futures/_base.py", "wait"): "future",
    ("futures/_base.py", "as_completed"): "future",
    ("futures/thread.py", "ThreadPoolExecutor.shutdown"): "join",
    ("importlib._bootstrap", "_ModuleLock.acquire"): "module",
    ("autograd/graph.py", "_engine_run_backward"): "engine",
}
"""(end of the file's path, qualified function) → kind of wait."""

WRAPPERS = (("torch_internals/compile_lock.py", "RecordingLock.acquire"), ("core/reported.py", "ReportedLock.acquire"))
"""Locks of ours around the program's: what counts is what their caller wrote."""

CUDA_GRAPH_LOCKS = {
    "self.lock": "TreeManagerContainer.lock",  # a device's manager of graphs is made under it
    "lock": "tree_manager_locks",  # an item of it, one a device
    "graph_capture_lock": "graph_capture_lock",  # since 2.13, of the process: a capture, a warm-up
}
"""How `torch/_inductor/cudagraph_trees.py` writes a lock in its code → the attribute that has it."""

PLAIN_LOCKS = ("lock", "RLock", "LockType", "SemLock")
"""Types of locks that are taken in C: no frame of Python code tells it."""

_ONLY_INNERMOST = ("engine",)  # on the CPU the caller runs the graph itself, and has frames above this one then
_MACHINERY = ("threading.py", "queue.py", "futures/_base.py", "futures/thread.py", "contextlib.py")
_PLAIN: dict[str, str] = {"with": "lock", "acquire": "lock", "get": "queue.get", "put": "queue.put", "__enter__": "lock"}
_LIBRARIES = ("/lib/python3", "/site-packages/", "/dist-packages/", "<frozen ", "/harness/subject/watch")


@dataclass(frozen=True, eq=False)
class Spot:
    """Where a thread waits. `frame`: the program's own frame; `value`: what is waited for; `written`: as it says there.

    `others`: further locks of the same line that it may be waiting for instead, when only the line is known.
    `limit`: seconds after which the wait ends by itself, as it was given; infinite when not known, None for no limit.
    """

    kind: str
    frame: Frame
    value: Value | None
    written: str
    expression: ast.expr | None = None
    others: tuple[tuple[ast.expr, Value | None], ...] = ()
    limit: float | None = None

    @property
    def key(self) -> Hashable:
        """Of what is waited for; None when not known."""
        return None if self.value is None else self.value.key


def lock_words(at: Spot) -> str:
    """What a lock that is waited for is called: as the program writes it, those of torch's CUDA graphs by attribute."""
    if ends_with(at.frame.file, "_inductor/cudagraph_trees.py") and at.written in CUDA_GRAPH_LOCKS:
        return f"torch's CUDA-graph lock `{CUDA_GRAPH_LOCKS[at.written]}`"
    return f"lock `{at.written}`" if at.written else "lock"


def of_library(frame: Frame) -> bool:
    """Whether the frame's code is not the program's own."""
    return any(part in frame.file for part in _LIBRARIES)


def ends_with(file: str, tail: str) -> bool:
    """Whether a path ends in these parts; "<frozen importlib._bootstrap>" counts as importlib._bootstrap."""
    path = file.replace("\\", "/").strip("<>").removeprefix("frozen ")
    if path.endswith("importlib/_bootstrap.py"):
        path = "importlib._bootstrap"
    return path == tail or path.endswith("/" + tail)


def spot(thread: ThreadView, sources: Sources) -> Spot | None:
    """Where the thread waits; None when it is in no wait that is known: it runs, or is in a call outside Python."""
    frames = list(thread.frames)
    found: tuple[str, int] | None = None
    depth = 0
    while depth < len(frames):
        frame = frames[depth]
        kind = _known(frame, sources)
        if kind is not None and (kind not in _ONLY_INNERMOST or depth == 0):
            found = (kind, depth)
        elif kind is None and not (machinery(frame.file) or _wrapper(frame)):
            break
        depth += 1
    if found is not None and not (depth and _wrapper(frames[0])):
        kind, at = found
        own = frames[at]
        caller = frames[min(depth, len(frames) - 1)]
        written = own.names("self")
        return Spot(kind, caller, written, _written(caller, sources, kind), limit=_limit(own))
    if depth < len(frames) and all(_wrapper(frame) for frame in frames[:depth]):
        return _plain(frames[depth], sources, wrapped=depth > 0)
    return None


def _known(frame: Frame, sources: Sources) -> str | None:
    for (tail, name), kind in WAITS.items():
        bare = name.rsplit(".", 1)[-1]
        if frame.function.rsplit(".", 1)[-1] == bare and ends_with(frame.file, tail) and (
            frame.function == name or tail == "importlib._bootstrap" or sources.qualified(frame) == name
        ):
            return kind
    return None


def machinery(file: str) -> bool:
    """Whether the file is the standard library's for threads: a wait that polls goes in and out of its functions."""
    return any(ends_with(file, tail) for tail in _MACHINERY) or "importlib._bootstrap" in file


def _wrapper(frame: Frame) -> bool:
    return any(ends_with(frame.file, tail) for tail, _ in WRAPPERS)


def _plain(frame: Frame, sources: Sources, *, wrapped: bool) -> Spot | None:
    """A wait in C, told by the line: a lock of a `with`, or a call of `acquire`, `get`, `put`."""
    block = sources.block(frame)
    if block is None:
        return None
    candidates: list[tuple[Call, str, Value | None]] = []
    for call in awaited(block, frame):
        kind = _PLAIN.get(call.method)
        if kind is None or call.base is None or not isinstance(call.base, (ast.Name, ast.Attribute, ast.Subscript)):
            continue
        value = resolve(call.base, frame, sources)
        if value is not None and not _fits(value.kind, kind, wrapped):
            continue
        candidates.append((call, kind, value))
    if not candidates:
        return None
    call, kind, value = candidates[0]
    others = tuple((other.base, seen) for other, _, seen in candidates[1:] if other.base is not None)
    assert call.base is not None
    limit = _asked(call.node) if isinstance(call.node, ast.Call) and kind != "queue.put" else None
    return Spot(kind, frame, value, ast.unparse(call.base), call.base, others, limit)


def _limit(frame: Frame) -> float | None:
    """The `timeout` that a function of the standard library that waits was given."""
    given = frame.names("timeout")
    if given is None or given.kind not in ("float", "int") or given.fact("text") == "-1":
        return None
    try:
        return float(given.fact("text"))
    except (TypeError, ValueError):
        return math.inf


def _asked(call: ast.Call) -> float | None:
    """The time limit of `acquire(True, 3)`, `get(timeout=3)` as it is written: after `blocking`, or by its name."""
    if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args):
        return math.inf
    for given in (*(keyword.value for keyword in call.keywords if keyword.arg == "timeout"), *call.args[1:2]):
        try:
            limit = ast.literal_eval(given)
        except ValueError:
            return math.inf
        return None if limit in (None, -1) else float(limit) if isinstance(limit, (int, float)) else math.inf
    return None


def _fits(type_name: str, kind: str, wrapped: bool) -> bool:
    """Whether an object of that type can be waited for so in C; "" is not known."""
    if not type_name or wrapped:
        return True
    if kind == "lock":
        return type_name.rsplit(".", 1)[-1] in PLAIN_LOCKS
    return type_name.rsplit(".", 1)[-1] == "SimpleQueue"


def _written(frame: Frame, sources: Sources, kind: str) -> str:
    """What the program calls the object it waits for: the base of the call on its line; "" when not plain."""
    found = written(frame, sources, kind)
    return "" if found is None else ast.unparse(found)


METHODS: dict[str, frozenset[str]] = {
    "lock": frozenset({"with", "acquire", "wait", "__enter__"}),
    "condition": frozenset({"wait", "wait_for"}),
    "event": frozenset({"wait"}),
    "barrier": frozenset({"wait"}),
    "semaphore": frozenset({"with", "acquire"}),
    "join": frozenset({"join", "shutdown", "with"}),
    "queue.put": frozenset({"put"}),
    "queue.get": frozenset({"get"}),
    "queue.join": frozenset({"join"}),
    "future": frozenset({"result", "exception"}),
}
"""Kind of wait → how a program's line asks for it."""


def written(frame: Frame, sources: Sources, kind: str) -> ast.expr | None:
    """The expression on the frame's line whose method makes a wait of that kind."""
    block = sources.block(frame) if kind in METHODS else None
    if block is None:
        return None
    for call in awaited(block, frame):
        if call.method in METHODS[kind] and call.base is not None:
            return call.base
    return None


def resolve(expression: ast.expr, frame: Frame, sources: Sources) -> Value | None:
    """What a name, attribute or item is in a frame; None where that cannot be told without running code."""
    if isinstance(expression, ast.Name):
        return frame.names(expression.id)
    if isinstance(expression, ast.Attribute):
        base = resolve(expression.value, frame, sources)
        return None if base is None else base.attribute(expression.attr)
    if isinstance(expression, ast.Subscript):
        base = resolve(expression.value, frame, sources)
        index = (
            Constant(expression.slice.value)
            if isinstance(expression.slice, ast.Constant)
            else resolve(expression.slice, frame, sources)
        )
        return None if base is None or index is None else base.item(index)
    return None


@dataclass(frozen=True)
class Constant:
    """A constant of the source, as an index."""

    value: object

    @property
    def key(self) -> Hashable:
        """Its text."""
        return repr(self.value)

    @property
    def kind(self) -> str:
        """Of the constant."""
        return type(self.value).__name__

    def attribute(self, name: str) -> Value | None:
        """None that matters."""
        return None

    def item(self, index: Value) -> Value | None:
        """None that matters."""
        return None

    def fact(self, name: str) -> object:
        """`text`."""
        return repr(self.value) if name == "text" else None
