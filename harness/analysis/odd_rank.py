"""Which of several processes that should do the same does something else. A pure function of their stacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from harness.core.stuck.views import ThreadView


@dataclass(frozen=True)
class Odd:
    """`odd`: those that differ from the majority; empty when none does. `groups`: ranks with the same stacks.

    `by`: in what they differ, in words; "" when in nothing.
    """

    odd: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    by: str


def odd_ranks(ranks: Mapping[str, Sequence[ThreadView]]) -> Odd:
    """Compares the main threads' functions first, then their lines, then all threads.

    With no majority of more than half, nobody is odd: `groups` says who is with whom.
    """
    for by, signature in _LEVELS:
        groups: dict[Hashable, list[str]] = {}
        for rank, threads in ranks.items():
            groups.setdefault(signature(threads), []).append(rank)
        if len(groups) < 2:
            continue
        ordered = sorted(groups.values(), key=lambda members: (-len(members), members))
        largest = ordered[0]
        odd = tuple(r for group in ordered[1:] for r in group) if 2 * len(largest) > len(ranks) else ()
        return Odd(odd, tuple(tuple(group) for group in ordered), by)
    return Odd((), (tuple(ranks),) if ranks else (), "")


def main_thread(threads: Sequence[ThreadView]) -> ThreadView | None:
    """The main thread, by its name, else the one whose outermost frame is a module."""
    named = [t for t in threads if t.name == "MainThread"]
    modules = [t for t in threads if t.frames and t.frames[-1].function == "<module>"]
    return next(iter(named or modules), None)


def _main(lines: bool) -> Callable[[Sequence[ThreadView]], Hashable]:
    def signature(threads: Sequence[ThreadView]) -> Hashable:
        main = main_thread(threads)
        return () if main is None else _stack(main, lines)

    return signature


def _all(lines: bool) -> Callable[[Sequence[ThreadView]], Hashable]:
    return lambda threads: frozenset(Counter(_stack(thread, lines) for thread in threads).items())


def _stack(thread: ThreadView, lines: bool) -> Hashable:
    keep = lines and thread.still is not False  # the line of a thread that runs differs at every look
    return tuple((frame.file, frame.function, frame.line if keep else 0) for frame in thread.frames)


_LEVELS: tuple[tuple[str, Callable[[Sequence[ThreadView]], Hashable]], ...] = (
    ("the functions on their main thread's stack", _main(False)),
    ("the lines on their main thread's stack", _main(True)),
    ("the functions on their threads' stacks", _all(False)),
    ("the lines on their threads' stacks", _all(True)),
)
