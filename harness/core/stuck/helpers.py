"""Who could end a wait: the holders of a lock, the threads whose code notifies, puts, gets, sets or comes to a barrier."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from .acquired import put_anew
from .source import Ahead, Block, Call, Sources, assigned, called, calls, held
from .views import Frame, ThreadView
from .waits import METHODS, PLAIN_LOCKS, Spot, machinery, of_library, resolve, written

ENDED_BY: dict[str, frozenset[str]] = {
    "condition": frozenset({"notify", "notify_all"}),
    "event": frozenset({"set"}),
    "barrier": frozenset({"wait", "abort", "reset"}),
    "semaphore": frozenset({"release"}),
    "queue.put": frozenset({"get", "get_nowait"}),
    "queue.get": frozenset({"put", "put_nowait"}),
    "queue.join": frozenset({"task_done"}),
}
"""Kind of wait → calls on the same object that end it."""

DEPTH = 3  # how far calls are followed from a function on a stack to functions of the same file
_HOLDS = re.compile(r"\bwith\b|\.acquire\s*\(")


@dataclass(frozen=True)
class Held:
    """A thread holds a lock: `key` None when its object is not known, then `name` is the last part of how it is written.

    may       it may hold it, see `source.Hold`
    waits     by a `with` on the line where it waits itself
    acquired  by an `acquire`, so another thread may let go of it for this one
    """

    key: Hashable
    name: str
    written: str
    place: str
    sure: bool
    may: bool = False
    waits: bool = False
    acquired: bool = False


class Same:
    """Keys that were found to mean one object."""

    def __init__(self) -> None:
        self._to: dict[Hashable, Hashable] = {}

    def of(self, key: Hashable) -> Hashable:
        """The one key that stands for all of them."""
        while key in self._to:
            key = self._to[key]
        return key

    def join(self, first: Hashable, second: Hashable) -> None:
        """They are one object."""
        first, second = self.of(first), self.of(second)
        if first != second:
            self._to[first] = second


def last_name(expression: ast.expr) -> str:
    """`queue` of `self.queue`; "" for what has no name."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def learn(spots: dict[int, Spot], sources: Sources, same: Same) -> None:
    """What a wait of the standard library tells: its `self` is what the caller's line names."""
    for at in spots.values():
        if at.value is None or at.kind not in METHODS:
            continue
        expression = written(at.frame, sources, at.kind)
        value = None if expression is None else resolve(expression, at.frame, sources)
        if value is not None:
            same.join(value.key, at.value.key)


def holds_of(thread: ThreadView, at: Spot | None, sources: Sources, same: Same) -> list[Held]:
    """The locks that a thread holds by its own code. A wait in a condition has given that condition's lock up."""
    found = []
    others = [expression for expression, _ in at.others] if at is not None else []
    own = list(thread.frames).index(at.frame) if at is not None else 0
    for depth, frame in enumerate(thread.frames):
        if depth < own and machinery(frame.file):
            continue  # what a wait of the standard library takes for its own ends it gives up while it waits
        if not _HOLDS.search(sources.text(frame)):
            continue
        block = sources.block(frame)
        if block is None:
            continue
        here = at is not None and at.frame is frame
        awaiting = at.expression if at is not None and here else None
        inner = thread.frames[depth - 1].function.rsplit(".", 1)[-1] if depth else None
        for hold in held(block, frame, awaiting, others if here else (), inner):
            if not isinstance(hold.expression, (ast.Name, ast.Attribute, ast.Subscript)):
                continue
            value = resolve(hold.expression, frame, sources)
            key = None if value is None else same.of(value.key)
            name, text = last_name(hold.expression), ast.unparse(hold.expression)
            if at is not None and at.kind == "condition" and _gave_up(at, key, name, sources, same):
                continue
            place = f"{frame.place.rsplit(':', 1)[0]}:{hold.line}"
            plain = hold.by_call and value is not None and value.kind.rsplit(".", 1)[-1] in PLAIN_LOCKS
            waits = hold.may and here and not hold.acquired
            found.append(Held(key, name, text, place, hold.sure or plain, hold.may and not plain, waits, hold.acquired))
    return found


def _gave_up(at: Spot, key: Hashable, name: str, sources: Sources, same: Same) -> bool:
    """Whether a lock is the condition that is waited for, or the one it was made with: `Condition(mutex)`."""
    lock = None if at.value is None else at.value.attribute("_lock")
    if key is not None:
        if at.key is not None and key == same.of(at.key):
            return True
        known = None if lock is None else same.of(lock.key)
        if key == known or (isinstance(key, int) and isinstance(known, int)):
            return key == known
    return bool(name) and name == _made_over(at, sources)


def _made_over(at: Spot, sources: Sources) -> str:
    """`mutex` where the file of a wait for `self.filled` has `self.filled = threading.Condition(self.mutex)`; else ""."""
    block, wanted = sources.block_at(at.frame.file, -1), at.written.rsplit(".", 1)[-1]
    for node in ast.walk(block.tree) if block is not None and wanted else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
            made = last_name(node.value.func) == "Condition" and any(last_name(target) == wanted for target in node.targets)
            if made:
                return last_name(node.value.args[0])
    return ""


def could_end(
    at: Spot, waiter: ThreadView, threads: Sequence[ThreadView], sources: Sources, same: Same
) -> dict[int, str]:
    """ident → where: other threads that are in a function which ends such a wait, or calls one of its file that does.

    The place begins with "?" where, by name alone, it may be another object.
    """
    names = ENDED_BY[at.kind]
    found: dict[int, str] = {}
    for thread in threads:
        if thread.ident == waiter.ident:
            continue
        for frame in thread.frames:
            if of_library(frame) and not of_library(at.frame):
                continue
            places_here = list(_ends(at, frame, names, sources, same))
            if places_here:
                found[thread.ident] = min(places_here, key=lambda place: place.startswith("?"))
                break
    return found


def _ends(at: Spot, frame: Frame, names: frozenset[str], sources: Sources, same: Same) -> Iterator[str]:
    for ahead in _calls_ahead(frame, names, sources):
        call = ahead.call
        assert call.base is not None
        value = resolve(call.base, frame, sources) if ahead.own or _from_self(call.base) else None
        place = f"{frame.place.rsplit(':', 1)[0]}:{call.line}"
        named = bool(last_name(call.base)) and last_name(call.base) == at.written.rsplit(".", 1)[-1]
        if value is not None and at.key is not None and same.of(value.key) == same.of(at.key):
            yield place
        elif ahead.anew:
            # It is another object now, or none that is known; what it will be when the call is made cannot be told.
            if named or _like(call, at.kind) or (value is not None and at.value is not None and value.kind == at.value.kind):
                yield f"?{place}"
        elif value is None or at.key is None or not (isinstance(value.key, int) and isinstance(at.key, int)):
            # By name alone: the same name is likely the same object, another may be, if it is called as one is.
            if named:
                yield place
            elif (value is None or not value.kind) and _like(call, at.kind):
                yield f"?{place}"


def _like(call: Call, kind: str) -> bool:
    """Whether the call has as many arguments as such a call has: `get(key)` is a dictionary's."""
    assert isinstance(call.node, ast.Call)
    return len(call.node.args) == (1 if kind == "queue.get" else 0)


def _from_self(expression: ast.expr) -> bool:
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return isinstance(expression, ast.Name) and expression.id == "self"


def _calls_ahead(frame: Frame, names: frozenset[str], sources: Sources) -> list[Ahead]:
    """Calls of these methods, from where the frame is on, in its function and in what this calls in its file."""
    key = (frame.file, sources.start(frame), frame.line, names)
    if key not in sources.ahead:
        blocks = [(block, own, assigned(block, frame.line if own else 0)) for block, own in _reachable(frame, sources)]
        shared = [node for _, _, nodes in blocks for node in nodes if not isinstance(node, ast.Name)]
        sources.ahead[key] = [
            Ahead(call, own, call.base is not None and put_anew(call.base, [*nodes, *shared]))
            for block, own, nodes in blocks
            for call in calls(block, names, frame.line if own else 0)
        ]
    return sources.ahead[key]


def _reachable(frame: Frame, sources: Sources) -> Iterator[tuple[Block, bool]]:
    """(block, whether it is the frame's own) of the frame's function and of what it still calls in its file."""
    seen: set[int] = set()
    waiting = [(sources.start(frame), 0)]
    while waiting:
        start, depth = waiting.pop(0)
        if start in seen:
            continue
        seen.add(start)
        block = sources.block_at(frame.file, start)
        if block is None:
            continue
        yield block, depth == 0
        if depth < DEPTH:
            for name in called(block, 0 if depth else frame.line):
                waiting += [(index, depth + 1) for index in sources.definitions(frame.file, name)]


def places(at: Spot, files: Sequence[str], names: frozenset[str], sources: Sources) -> list[str]:
    """Where the program's files make such calls on something of that name, whoever runs them: "train.py:12, in f"."""
    wanted = at.written.rsplit(".", 1)[-1]
    found = []
    for file in files:
        block = sources.block_at(file, -1)
        if block is None or not wanted:
            continue
        for function, call in _named_calls(block.tree):
            if call.method in names and call.base is not None and last_name(call.base) == wanted:
                short = file.rsplit("/", 1)[-1]
                found.append(f"{short}:{call.line}" + (f", in {function}" if function else ""))
    return found


def _named_calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, Call]]:
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield function, Call(node.func.value, node.func.attr, node.lineno, node)
        yield from _named_calls(node, inside)


def made_with(name: str, kind: str, files: Sequence[str], sources: Sources) -> int | None:
    """The constant that a `Barrier(3)` of that name was made with; None when it is not written so, or differs."""
    found: set[int] = set()
    for file in files:
        block = sources.block_at(file, -1)
        for node in ast.walk(block.tree) if block is not None else ():
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args):
                continue
            function, first = node.value.func, node.value.args[0]
            if last_name(function) == kind and any(last_name(target) == name for target in node.targets):
                found.add(first.value if isinstance(first, ast.Constant) and isinstance(first.value, int) else -1)
    return found.pop() if len(found) == 1 and -1 not in found else None
