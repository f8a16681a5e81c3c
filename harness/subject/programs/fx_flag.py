"""Small programs in which one thread's FX trace meets another thread's call of a compiled function. All on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from harness.core.workload import Worker

from .parts import Parts


def double(x: Tensor) -> Tensor:
    """What is compiled."""
    return x * 2


def triple(x: Tensor) -> Tensor:
    """What is traced; another function, so that nothing of it is cached."""
    return x * 3


def sine(x: Tensor) -> Tensor:
    """What is compiled and then computed again."""
    return x.sin()


def square(x: Tensor) -> Tensor:
    """What inductor lowers: its backward adds two matrix products, for which inductor traces a replacement anew."""
    return x @ x


class UserTrace(Parts):
    """`tracer` traces a function with `make_fx`, as user code may; `caller` calls a compiled function."""

    def build(self) -> None:
        """Compiles at the first call."""
        self._compiled = torch.compile(double, backend="eager")

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One trace, one call."""
        return {"tracer": self.trace, "caller": self.call}

    def trace(self) -> None:
        """A trace of user code's own."""
        make_fx(triple)(torch.ones(2))

    def call(self) -> None:
        """A call of the compiled function."""
        self._compiled(torch.ones(2))


class LazyBackward(UserTrace):
    """`tracer` takes the first backward of a function that inductor compiled: the backward graph is lowered there, outside
    of Dynamo's compile, and inductor traces what it puts in place of an addition of matrix products."""

    def build(self) -> None:
        """A function each."""
        super().build()
        self._lowered = torch.compile(square, backend="inductor")

    def trace(self) -> None:
        """Forward, then backward."""
        x = torch.ones(4, 4, requires_grad=True)
        y = self._lowered(x)
        with self.ctx.region("backward", "tracer"):
            y.sum().backward()  # type: ignore[no-untyped-call]


class EagerFlex(UserTrace):
    """`tracer` calls `flex_attention` without `torch.compile`, with gradient: it traces its joint graph at each call."""

    def trace(self) -> None:
        """One call."""
        q, k, v = (torch.ones(1, 1, 8, 8, requires_grad=True) for _ in range(3))
        flex_attention(q, k, v)


class TwoShapes(Parts):
    """Two drafters that share one compiled function and differ in static shapes, two steps each, forward and backward."""

    def build(self) -> None:
        """Static shapes, so that each drafter compiles a graph of its own."""
        self._compiled = torch.compile(double, backend="aot_eager", dynamic=False)

    def workers(self) -> list[Worker]:
        """Both are drafters, for either can be the one that is warm first."""
        return [Worker(f"drafter-{i}", "drafter", self.device, partial(self._train, i)) for i in range(2)]

    def _train(self, number: int) -> None:
        name = f"drafter-{number}"
        x = torch.ones(4 + number, requires_grad=True)
        for _ in range(2):
            if not self.step(name, partial(self._step, name, x)):
                return

    def _step(self, name: str, x: Tensor) -> None:
        with self.ctx.region("mask", name):
            pass  # where the lock of `first_step` begins
        with self.ctx.region("forward", name):
            y = self._compiled(x)
        with self.ctx.region("backward", name):
            y.sum().backward()  # type: ignore[no-untyped-call]


class LeftBehind(UserTrace):
    """Fact `effect`: after all have ended, compiled code is refused in a thread in which nobody traces (`flag_stuck`), or
    `nn.Module.__call__` is still that of a trace (`module_patched`). As it is: `caller` compiles while `tracer` traces."""

    def build(self) -> None:
        """Remembers what is to be as it was."""
        super().build()
        self._module_call = torch.nn.Module.__call__

    def check(self) -> list[str]:
        """On the main thread, when all have ended."""
        stuck = False
        try:
            self._compiled(torch.ones(2))
        except RuntimeError as error:
            stuck = "Detected that you are using FX" in str(error)
            if not stuck:
                raise
        patched = torch.nn.Module.__call__ is not self._module_call
        for name, value in (("flag_stuck", stuck), ("module_patched", patched), ("effect", stuck or patched)):
            self.ctx.fact("", name, value)
        return []


class TwoTraces(LeftBehind):
    """`first` and `second` trace a function each. Fact `effect`: as `LeftBehind`."""

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Two traces."""
        return {"first": self.trace, "second": self._second}

    def _second(self) -> None:
        self.ctx.mark("second", "begin")
        self.trace()


class Recompute(UserTrace):
    """`caller` has a checkpoint around its compiled function (the axis `checkpoint`: which kind), so backward calls it
    again; `tracer` traces meanwhile."""

    def build(self) -> None:
        """A function whose backward needs its input: else a non-reentrant checkpoint has nothing to compute again."""
        self._compiled = torch.compile(sine, backend="eager")

    def call(self) -> None:
        """Forward, then backward."""
        x = torch.ones(2, requires_grad=True)
        with self.ctx.region("forward", "caller"):
            y = checkpoint(self._compiled, x, use_reentrant=self.scenario.checkpoint == "reentrant")
        with self.ctx.region("backward", "caller"):
            y.sum().backward()
