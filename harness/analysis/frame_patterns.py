"""Whether a stack goes through the functions that a signature names, also when files moved and the stack was cut.

A pattern is one function of a `harness.hazards.base.ThreadPattern`: `_compile`, `convert_frame.py:_compile`, or several of
these divided by "|"; a last one that ends in "$" is the innermost frame of Python, so the thread is there now. Only as much
is compared as both sides have: py-spy prints `Condition.wait` where faulthandler prints `wait`, and a path may begin
anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from harness.analysis.dump_values import LOCK, Frame

_NATIVE_LOCKS = ("lock_PyThread_acquire_lock", "rlock_acquire", "PyThread_acquire_lock_timed")
_RUN, _NODE = "graph.py:_engine_run_backward", "function.py:apply|function.py:apply_boxed|checkpoint.py:unpack_hook"
_WAITING = ("threading.py", "queue.py", "concurrent/futures/_base.py", "concurrent/futures/thread.py")


@dataclass(frozen=True)
class Fit:
    """`last`: index of the innermost frame that was matched. `certain`: the whole pattern was found."""

    fits: bool
    certain: bool
    last: int | None


MISFIT = Fit(False, False, None)


def fit(patterns: Sequence[str], frames: Sequence[Frame], *, cut_outer: bool, cut_inner: bool) -> Fit:
    """Whether `patterns` are found in `frames` (both outermost first) in this order, with others between.

    Where the stack was cut, patterns at that end may be missing, as long as at least half of them, and two, are there.
    """
    last = _subsequence(patterns, frames)
    if last is not None:
        return Fit(True, True, last)
    fewest = max(2, (len(patterns) + 1) // 2)
    for missing in range(1, len(patterns) - fewest + 1):
        cuts = ([(missing, 0)] if cut_outer else []) + ([(0, missing)] if cut_inner else [])
        for outer, inner in cuts:
            last = _subsequence(patterns[outer : len(patterns) - inner], frames)
            if last is not None:
                return Fit(True, False, last)
    return MISFIT


def of_engine(frames: Sequence[Frame], *, cut_outer: bool) -> bool:
    """Whether the stack (outermost first) can be one of autograd's own threads, as a dump of Python's frames has it.

    Such a thread begins in a node of the graph, so it has no root (`cut_outer`), and runs the engine only from there, as a
    reentrant checkpoint does. A stack that was cut above the backward of its own thread looks the same.
    """
    if not cut_outer:
        return False
    run = next((number for number, frame in enumerate(frames) if matches(_RUN, frame)), None)
    return run is None or any(matches(_NODE, frame) for frame in frames[:run])


def _subsequence(patterns: Sequence[str], frames: Sequence[Frame]) -> int | None:
    """Index of the frame that the last pattern fell on; None when they are not all there. Matched from the inside, so that
    a role is shown where it is now."""
    if not patterns:
        return None if not frames else len(frames) - 1
    at = len(frames)
    innermost = None
    for pattern in reversed(patterns):
        at -= 1
        now = pattern.endswith("$")
        while at >= 0 and not _at(pattern.removesuffix("$"), frames, at):
            if now and frames[at].is_python and not frames[at].is_observer:
                return None
            at -= 1
        if at < 0:
            return None
        innermost = at if innermost is None else innermost
    return innermost


def _at(pattern: str, frames: Sequence[Frame], at: int) -> bool:
    return matches(pattern, frames[at]) or (LOCK in pattern.split("|") and _waits_for_lock(frames, at))


def _waits_for_lock(frames: Sequence[Frame], at: int) -> bool:
    """A native wait for a lock that the Python frame above it takes itself: no condition, event, queue or join."""
    if frames[at].function not in _NATIVE_LOCKS:
        return False
    above = next((frame for frame in reversed(frames[:at]) if frame.is_python), None)
    return above is not None and not above.file.endswith(_WAITING)


def matches(pattern: str, frame: Frame) -> bool:
    """Whether the frame is one of the pattern's alternatives."""
    return any(
        _same_end(function, _parts(frame.function)) and (not file or _same_end(file, tuple(frame.file.split("/"))))
        for file, function in _alternatives(pattern)
    )


def _same_end(one: Sequence[str], other: Sequence[str]) -> bool:
    shared = min(len(one), len(other))
    return shared > 0 and tuple(one[-shared:]) == tuple(other[-shared:])


@lru_cache(maxsize=4096)
def _alternatives(pattern: str) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    found = []
    for alternative in pattern.split("|"):
        file, _, function = alternative.strip().rpartition(".py:")
        found.append((tuple(f"{file}.py".split("/")) if file else (), _parts(function)))
    return tuple(found)


@lru_cache(maxsize=65536)
def _parts(function: str) -> tuple[str, ...]:
    """`torch::autograd::Engine::thread_main(int)` and `Module.f.<locals>.g` by their parts, without arguments."""
    if "::" in function:
        function = re.sub(r"\(.*\)(?: const)?(?: \[.*\])?$", "", function)
        return tuple(function.split("::"))
    return tuple(part for part in function.split(".") if part != "<locals>")
