"""The programs. Each access to what threads share has a point before it, so the odds of a schedule can be counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from harness.core.workload import Context, Worker

from .rig import StoppableLock


def _workers(ctx: Context, *bodies: Callable[[], None]) -> list[Worker]:
    del ctx
    return [Worker(f"worker-{i}", "worker", "cpu", body) for i, body in enumerate(bodies)]


class CheckThenAct:
    """Two threads make a thing once: unless both look before either makes it. Depth 2."""

    points = 6  # two threads: start, check, act

    def __init__(self) -> None:
        self.made = 0

    def workers(self, ctx: Context) -> list[Worker]:
        return _workers(ctx, *(partial(self._run, ctx, f"worker-{i}") for i in range(2)))

    def _run(self, ctx: Context, name: str) -> None:
        ctx.mark(name, "check")
        if self.made == 0:
            ctx.mark(name, "act")
            self.made += 1

    def racy(self) -> bool:
        return self.made > 1


class LostUpdate:
    """Two threads add one: read, then write. Depth 2."""

    points = 6

    def __init__(self) -> None:
        self.count = 0

    def workers(self, ctx: Context) -> list[Worker]:
        return _workers(ctx, *(partial(self._run, ctx, f"worker-{i}") for i in range(2)))

    def _run(self, ctx: Context, name: str) -> None:
        ctx.mark(name, "read")
        value = self.count
        ctx.mark(name, "write")
        self.count = value + 1

    def racy(self) -> bool:
        return self.count != 2


class LockInversion:
    """One thread takes a then b, the other b then a. Depth 2; shows as a deadlock."""

    points = 6

    def workers(self, ctx: Context) -> list[Worker]:
        a, b = StoppableLock("lock a", ctx), StoppableLock("lock b", ctx)
        return _workers(ctx, partial(self._run, ctx, "worker-0", a, b), partial(self._run, ctx, "worker-1", b, a))

    def _run(self, ctx: Context, name: str, first: StoppableLock, second: StoppableLock) -> None:
        ctx.mark(name, "first")
        first.acquire(name)
        try:
            ctx.mark(name, "second")
            second.acquire(name)
            second.release()
        finally:
            first.release()

    def racy(self) -> bool:
        return False


class Aba:
    """A stack without locks: a pop that reads head and next, while another thread pops two and pushes the first again.

    The compare-and-set then succeeds and puts an element on the stack that was given away. Depth 2.
    """

    points = 7  # two threads: start; pop: read, swap; other: pop, pop, push

    def __init__(self) -> None:
        self.head: tuple[str, ...] = ("A", "B", "C")
        self.given: list[str] = []

    def workers(self, ctx: Context) -> list[Worker]:
        return _workers(ctx, partial(self._pop, ctx), partial(self._other, ctx))

    def _pop(self, ctx: Context) -> None:
        ctx.mark("worker-0", "read")
        top, rest = self.head[:1], self.head[1:]
        ctx.mark("worker-0", "swap")
        if self.head[:1] == top:  # compares the element only: that is the error
            self.head = rest
            self.given += top

    def _other(self, ctx: Context) -> None:
        ctx.mark("worker-1", "pop")
        first, self.head = self.head[:1], self.head[1:]
        ctx.mark("worker-1", "pop")
        second, self.head = self.head[:1], self.head[1:]
        self.given += second
        ctx.mark("worker-1", "push")
        self.head = first + self.head

    def racy(self) -> bool:
        return bool(set(self.given) & set(self.head))


class ThreeThreads:
    """Goes wrong only if three threads meet in one order: p1 q r p2. Depth 3."""

    points = 7  # three starts, p1, p2, q, r

    def __init__(self) -> None:
        self.stage = 0

    def workers(self, ctx: Context) -> list[Worker]:
        q, r = partial(self._advance, ctx, 1, "q"), partial(self._advance, ctx, 2, "r")
        return _workers(ctx, partial(self._p, ctx), q, r)

    def _p(self, ctx: Context) -> None:
        ctx.mark("worker-0", "p1")
        self.stage = 1
        ctx.mark("worker-0", "p2")
        if self.stage == 3:
            self.stage = 4

    def _advance(self, ctx: Context, number: int, name: str) -> None:
        ctx.mark(f"worker-{number}", name)
        if self.stage == number:
            self.stage += 1

    def racy(self) -> bool:
        return self.stage == 4


class Correct:
    """Two threads add one and make a thing once, both under a lock. Never goes wrong."""

    points = 10

    def __init__(self) -> None:
        self.count = self.made = 0

    def workers(self, ctx: Context) -> list[Worker]:
        lock = StoppableLock("the lock", ctx)
        return _workers(ctx, *(partial(self._run, ctx, f"worker-{i}", lock) for i in range(2)))

    def _run(self, ctx: Context, name: str, lock: StoppableLock) -> None:
        ctx.mark(name, "before")
        lock.acquire(name)
        try:
            ctx.mark(name, "read")
            value = self.count
            ctx.mark(name, "write")
            self.count = value + 1
            ctx.mark(name, "check")
            if self.made == 0:
                self.made += 1
        finally:
            lock.release()

    def racy(self) -> bool:
        return self.count != 2 or self.made != 1
