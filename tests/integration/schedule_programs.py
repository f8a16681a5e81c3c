"""Small workloads for the tests of schedules: one with torch, one without."""

from __future__ import annotations

import itertools
import threading
from functools import partial

from harness.core.plan import OCCURRENCES
from harness.core.reported import ReportedLock
from harness.core.workload import Context, Scenario, Worker


class _Program:
    """Two workers that run `body`."""

    names = ("worker-0", "worker-1")

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self._scenario, self._ctx = scenario, ctx

    def workers(self) -> list[Worker]:
        return [Worker(name, "worker", "cpu", partial(self.body, name)) for name in self.names]

    def stop(self) -> None:
        pass

    def body(self, name: str) -> None:
        raise NotImplementedError


class LostUpdate(_Program):
    """Reads, then writes, without a lock. Fact `effect`: an update was lost."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        self._count = 0

    def body(self, name: str) -> None:
        with self._ctx.region("step", name):
            self._ctx.mark(name, "read")
            value = self._count
            self._ctx.mark(name, "write")
            self._count = value + 1
        self._ctx.step(name, tokens=1, loss=None)

    def check(self) -> list[str]:
        lost = self._count != 2
        self._ctx.fact("", "effect", lost)
        return ["an update was lost"] if lost else []


class _AndThen(LostUpdate):
    """As often as a plan is tried, and then what it is about."""

    def body(self, name: str) -> None:
        for _ in range(2 * OCCURRENCES):
            super().body(name)
        self.then(name)

    def then(self, name: str) -> None:
        raise NotImplementedError

    def _go_on(self, name: str) -> None:
        """For ever, one event after the other."""
        while True:
            self._ctx.mark(name, "goes_on")
            with self._ctx.region("mask", name):
                threading.Event().wait(0.02)


class LostForEver(_AndThen):
    """It goes on, and counts new things all the time."""

    def then(self, name: str) -> None:
        for number in itertools.count():
            with self._ctx.region("mask", name):
                for part in range(100):
                    self._ctx.count(name, f"kind {number}.{part}")
                    self._ctx.fact(name, f"fact {number}.{part}", part)


class LostAndFails(_AndThen):
    """One of the two fails once its plan is decided, and takes half a second to tell of it."""

    def then(self, name: str) -> None:
        if name == self.names[0]:
            self._go_on(name)
        try:
            with self._ctx.region("step", name):
                raise RuntimeError("of the race")
        except RuntimeError as error:
            threading.Event().wait(1.0)  # a long traceback on a loaded machine
            self._ctx.step_failed(name, error)


class LostAndStuck(_AndThen):
    """The two take plain locks, of which nobody is told, in opposite orders."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        self._locks = (threading.Lock(), threading.Lock())
        self._both = threading.Barrier(2)

    def then(self, name: str) -> None:
        one, other = self._locks if name == self.names[0] else self._locks[::-1]
        with one:
            self._both.wait(30)
            with other:
                pass


class Collide(_Program):
    """Each worker compiles a function of its own and calls it forward and backward, twice."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        import torch

        torch.manual_seed(0)
        self._functions = {name: torch.compile(_function(i), backend="aot_eager") for i, name in enumerate(self.names)}

    def body(self, name: str) -> None:
        import torch

        x = torch.ones(4, requires_grad=True)
        for _ in range(2):
            try:
                with self._ctx.region("step", name):
                    with self._ctx.region("forward", name):
                        y = self._functions[name](x)
                    with self._ctx.region("backward", name):
                        y.sum().backward()
            except RuntimeError as error:
                self._ctx.step_failed(name, error)
                return
            self._ctx.step(name, tokens=1, loss=float(y.sum()))


def _function(number: int):  # type: ignore[no-untyped-def]
    def function(x):  # type: ignore[no-untyped-def]
        return x * (number + 2)

    function.__code__ = function.__code__.replace(co_name=f"function_{number}")
    return function


class UserTrace(_Program):
    """`worker-0` traces a function with `make_fx`, as user code may; `worker-1` calls a compiled function."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        import torch

        self._function = torch.compile(_function(0), backend="eager")

    def workers(self) -> list[Worker]:
        roles = zip(self.names, ("tracer", "caller"), strict=True)
        return [Worker(name, role, "cpu", partial(self.body, name)) for name, role in roles]

    def body(self, name: str) -> None:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        try:
            with self._ctx.region("step", name):
                if name == self.names[0]:
                    make_fx(_function(1))(torch.ones(2))
                else:
                    self._function(torch.ones(2))
        except RuntimeError as error:
            self._ctx.step_failed(name, error)
            return
        self._ctx.step(name, tokens=1, loss=None)


class Inversion(_Program):
    """Two locks, taken the other way round: a deadlock if each has its first."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        self._locks = [ReportedLock("lock a", ctx), ReportedLock("lock b", ctx)]

    def body(self, name: str) -> None:
        first, second = self._locks if name == self.names[0] else self._locks[::-1]
        self._ctx.mark(name, "first")
        with first.held(name):
            self._ctx.mark(name, "second")
            with second.held(name):
                self._ctx.mark(name, "both")
        self._ctx.step(name, tokens=1, loss=None)
