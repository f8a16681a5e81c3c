"""What ends a wait although no thread of the program's is about to: a clock, a peer, another process, a signal's handler."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from .source import Sources, called
from .views import Frame, ThreadView
from .waits import Spot, ends_with, of_library

OUTSIDE_FILES = re.compile(
    r"(?:^|/)(?:selectors|socket|ssl|socketserver|subprocess|popen_fork|popen_spawn_posix|connection)\.py$|/asyncio/"
)
OUTSIDE_CALLS = re.compile(
    r"\b(?:sleep|select|poll|epoll|accept|recv\w*|wait[34]|waitpid|pause|sigwait\w*|input|readline|getch)\s*\("
)
"""A thread in one of these waits for a clock, a peer, a child or a person: what it waits for is not in this process."""

_CALLING_BACK = (
    ("threading.py", "Timer.run"),
    ("sched.py", "scheduler.run"),
    ("socketserver.py", "BaseServer.serve_forever"),
    ("asyncio/base_events.py", "BaseEventLoop.run_forever"),
    ("multiprocessing/pool.py", "Pool._handle_results"),
    ("multiprocessing/managers.py", "Server.serve_forever"),
    ("futures/process.py", "_ExecutorManagerThread.run"),
)
"""Functions of the standard library that wait for a time or a message, and then call what the program gave them."""


def serves(thread: ThreadView, sources: Sources) -> bool:
    """Whether the thread stands in such a function, and in nothing that this has called."""
    for frame in thread.frames:
        if not of_library(frame):
            return False
        if any(_is(frame, tail, name, sources) for tail, name in _CALLING_BACK):
            return True
    return False


def calls_back(thread: ThreadView, sources: Sources) -> bool:
    """Whether it does, or is a library's own and waits for something outside the process."""
    own = bool(thread.frames) and all(of_library(frame) for frame in thread.frames)
    return serves(thread, sources) or (own and stands_outside(thread.frames[0], sources))


def _is(frame: Frame, tail: str, name: str, sources: Sources) -> bool:
    bare = name.rsplit(".", 1)[-1]
    if frame.function.rsplit(".", 1)[-1] != bare or not ends_with(frame.file, tail):
        return False
    return frame.function in (name, bare) or sources.qualified(frame) == name


def stands_outside(frame: Frame, sources: Sources) -> bool:
    """Whether an innermost frame is in a call that waits for something outside the process, by its file or its line."""
    lines = sources.lines(frame.file)
    line = lines[frame.line - 1] if 0 < frame.line <= len(lines) else ""
    return bool(OUTSIDE_FILES.search(frame.file) or OUTSIDE_CALLS.search(line))


def of_processes(at: Spot) -> bool:
    """Whether what is waited for is shared with other processes: a lock or queue of `multiprocessing`."""
    kind = "" if at.value is None else at.value.kind.rsplit(".", 1)[-1]
    return kind == "SemLock" or ends_with(at.frame.file, "multiprocessing/synchronize.py")


def ended_by_signal(at: Spot, files: Sequence[str], methods: frozenset[str], sources: Sources) -> bool:
    """Whether a handler that the program's files give to `signal.signal` makes a call that ends the wait, by its name."""
    wanted = at.written.rsplit(".", 1)[-1]
    if not wanted:
        return False
    for file in files:
        if "signal" not in "".join(sources.lines(file)):
            continue
        for tree in _handlers(file, sources):
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
                    base = node.func.value
                    if wanted in (getattr(base, "attr", None), getattr(base, "id", None)):
                        return True
    return False


def _handlers(file: str, sources: Sources) -> Iterator[ast.AST]:
    """The code of each handler, and of the functions of its file that it calls."""
    block = sources.block_at(file, -1)
    for node in ast.walk(block.tree) if block is not None else ():
        if not (isinstance(node, ast.Call) and len(node.args) > 1):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        handler = node.args[1]
        if name not in ("signal", "add_signal_handler"):
            continue
        if isinstance(handler, ast.Lambda):
            yield handler
        for start in sources.definitions(file, str(getattr(handler, "attr", getattr(handler, "id", "")))):
            own = sources.block_at(file, start)
            if own is not None:
                yield own.tree
                for further in called(own):
                    for other in sources.definitions(file, further):
                        found = sources.block_at(file, other)
                        if found is not None:
                            yield found.tree
