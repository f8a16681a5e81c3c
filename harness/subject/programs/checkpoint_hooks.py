"""A small program in which one thread's failed checkpoint breaks another thread's. On the CPU, without a compiler."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .parts import Parts


class HooksAstray(Parts):
    """`failing` raises inside a non-reentrant checkpoint and keeps the exception; `bystander` drops it, inside its own.

    With the setting `drop = "here"`, which is the remedy, `failing` drops it itself, at once.
    """

    def build(self) -> None:
        """One tensor, and where exceptions are kept (a list of failures, a future, a queue of results)."""
        self._x = torch.ones(3, requires_grad=True)
        self._kept: list[BaseException] = []

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `failed` after the failing step, `inside` in the bystander's checkpoint, before it drops what was kept."""
        return {"failing": self._fail, "bystander": self._bystand}

    def _fail(self) -> None:
        try:
            checkpoint(_raise, self._x, use_reentrant=False)
        except ValueError as error:
            if self.ctx.settings.get("drop") != "here":
                self._kept.append(error)
        self.ctx.mark("failing", "failed")

    def _bystand(self) -> None:
        y: Tensor = checkpoint(self._with_clearing, self._x, use_reentrant=False)
        y.backward()  # type: ignore[no-untyped-call]

    def _with_clearing(self, x: Tensor) -> Tensor:
        self.ctx.mark("bystander", "inside")
        self._kept.clear()
        gc.collect()
        return (x * x).sin().sum()


def _raise(x: Tensor) -> Tensor:
    raise ValueError("a step that fails")
