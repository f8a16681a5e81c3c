"""Small programs in which two threads wait for each other: a user's lock, a barrier, torch's compile lock, autograd's
device thread. Each needs the compiler or a lock strategy; the last two need a device that autograd has a thread for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from harness.core.reported import ReportedLock
from harness.core.workload import Worker

from .parts import EngineParts, Parts


def double(x: Tensor) -> Tensor:
    """What is compiled."""
    return x * 2


def triple(x: Tensor) -> Tensor:
    """What is compiled by the other thread."""
    return x * 3


def sine(x: Tensor) -> Tensor:
    """What is compiled and has a backward that needs its input."""
    return x.sin()


class LockInBackend(Parts):
    """`compiler` compiles with a backend that takes a user's lock (a cache of its own, a logger); `holder` holds that lock
    and calls a function that must be compiled."""

    def build(self) -> None:
        """The lock, and a function each."""
        self._lock = ReportedLock("the user's lock", self.ctx)
        self._with_lock = torch.compile(double, backend=self._backend)
        self._plain = torch.compile(triple, backend="eager")

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One compile each."""
        return {"compiler": self._compile, "holder": self._hold}

    def _backend(self, graph: Callable[..., Any], inputs: Sequence[Tensor]) -> Callable[..., Any]:
        self.ctx.mark("compiler", "backend")
        with self._lock.held("compiler"):
            return graph

    def _compile(self) -> None:
        self._with_lock(torch.ones(2))

    def _hold(self) -> None:
        self.ctx.mark("holder", "begin")
        with self._lock.held("holder"):
            self.ctx.mark("holder", "locked")
            self._plain(torch.ones(2))


class BarrierInLock(Parts):
    """Two replicas under `lock = "every_step"` that meet at a barrier: inside their locked step, or, with the setting
    `barrier = "outside"`, after it. Without torch."""

    def build(self) -> None:
        """A barrier of two."""
        self._names = [f"drafter-{i}" for i in range(2)]
        self._barrier = threading.Barrier(len(self._names))
        self._outside = self.ctx.settings.get("barrier") == "outside"

    def workers(self) -> list[Worker]:
        """Both are drafters."""
        return [Worker(name, "drafter", "cpu", partial(self._run, name)) for name in self._names]

    def stop(self) -> None:
        """Nobody waits any more."""
        self._barrier.abort()

    def _run(self, name: str) -> None:
        inside = (lambda: None) if self._outside else partial(self._meet, name)
        if self.step(name, inside) and self._outside:
            self._meet(name)

    def _meet(self, name: str) -> None:
        """Waits for the other replica."""
        others = [other for other in self._names if other != name]
        with self.ctx.waiting(name, "barrier.wait", others):
            self._barrier.wait()


class CompileLockAndEngine(EngineParts):
    """`trainer` runs the first backward of a compiled function, whose graph is lowered on autograd's device thread;
    `attender` compiles `flex_attention`, whose joint trace needs that device thread."""

    def build(self) -> None:
        """A function each."""
        self._trained = torch.compile(sine, backend=self.backend)
        self._attention = torch.compile(flex_attention, backend=self.backend)

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One step each."""
        return {"trainer": self._train, "attender": self._attend}

    def _train(self) -> None:
        x = torch.ones(16, device=self.device, requires_grad=True)
        y = self._trained(x)
        with self.ctx.region("backward", "trainer"):
            y.sum().backward()  # type: ignore[no-untyped-call]

    def _attend(self) -> None:
        q, k, v = (torch.ones(1, 1, 128, 64, device=self.device, requires_grad=True) for _ in range(3))
        self._attention(q, k, v)


class LockedRecompute(EngineParts):
    """One drafter that holds a lock in its attention and in its backward, a checkpoint around the attention: the recompute
    runs on autograd's device thread, and enters the attention's region there."""

    def build(self) -> None:
        """One function."""
        self._compiled = torch.compile(sine, backend=self.backend)

    def workers(self) -> list[Worker]:
        """A drafter."""
        return [Worker("drafter-0", "drafter", self.device, partial(self.run, "drafter-0", self._train))]

    def _train(self) -> None:
        x = torch.ones(16, device=self.device, requires_grad=True)
        with self.ctx.region("forward", "drafter-0"):
            y: Tensor = checkpoint(self._attend, x, use_reentrant=False)
        with self.ctx.region("backward", "drafter-0"):
            y.sum().backward()  # type: ignore[no-untyped-call]

    def _attend(self, x: Tensor) -> Tensor:
        with self.ctx.region("attention", "drafter-0"):
            y: Tensor = self._compiled(x)
            return y
