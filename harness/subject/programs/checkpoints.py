"""Small programs in which a checkpoint's recompute is not what its forward was. All on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .parts import Parts
from .shown import Shown


def product(a: Tensor, b: Tensor) -> Tensor:
    """Compiled and uncompiled it keeps the same two tensors for its backward, in another order."""
    return a * b


def attend(x: Tensor) -> Tensor:
    """[length, 2] → the same. Compiled for one length it keeps other shapes than compiled for any length."""
    return (x.sum(0, keepdim=True).expand(x.shape[0], 2) * x).exp()


class Mixed(Shown):
    """`trainer` trains under a non-reentrant checkpoint; `setter` sets the stance `force_eager`, for a while.

    Effect: `trainer`'s gradients are wrong, and nothing was raised.
    """

    def build(self) -> None:
        """Two numbers whose product has two derivatives."""
        self._compiled = torch.compile(product, backend="aot_eager")
        self._gradients: tuple[Tensor | None, Tensor | None] = (None, None)

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `forward` and `backward` after these; `setting` before the stance is set, `leave` before it is left."""
        return {"trainer": self._train, "setter": self._set}

    def _train(self) -> None:
        a, b = torch.full((3,), 2.0, requires_grad=True), torch.full((3,), 5.0, requires_grad=True)
        y = checkpoint(self._compiled, a, b, use_reentrant=False)
        self.ctx.mark("trainer", "forward")
        y.sum().backward()
        self.ctx.mark("trainer", "backward")
        self._gradients = (a.grad, b.grad)

    def _set(self) -> None:
        self.ctx.mark("setter", "setting")
        with torch.compiler.set_stance("force_eager"):
            self.ctx.mark("setter", "leave")

    def effect(self) -> bool:
        """d(ab)/da = b = 5 and d(ab)/db = a = 2."""
        right = (torch.full((3,), 5.0), torch.full((3,), 2.0))
        return any(
            found is not None and not torch.equal(found, wanted)
            for found, wanted in zip(self._gradients, right, strict=True)
        )


class OtherGraph(Parts):
    """`trainer` trains under a non-reentrant checkpoint; `caller` calls the same compiled function with another length.

    Setting `dynamic`: as `torch.compile` takes it, None if absent. The trainer's error shows it.
    """

    def build(self) -> None:
        """One function for both."""
        self._compiled = torch.compile(attend, backend="aot_eager", dynamic=self.ctx.settings.get("dynamic"))

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `forward` after the trainer's; `call` before and `called` after the caller's."""
        return {"trainer": self._train, "caller": self._call}

    def _train(self) -> None:
        x = torch.ones(4, 2, requires_grad=True)
        y = checkpoint(self._compiled, x * 1, use_reentrant=False)
        self.ctx.mark("trainer", "forward")
        y.sum().backward()

    def _call(self) -> None:
        self.ctx.mark("caller", "call")
        self._compiled(torch.ones(5, 2, requires_grad=True))
        self.ctx.mark("caller", "called")


class Keywords(Parts):
    """`trainer` trains a residual layer under a reentrant checkpoint. The outcome `no_grad` shows the effect.

    Setting `hidden`, how the layer gets its input: "by_keyword", if absent, or "by_position".
    """

    def build(self) -> None:
        """The layer is what is trained."""
        torch.manual_seed(0)
        self._layer = torch.nn.Linear(4, 4, bias=False)

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """No second thread is needed."""
        return {"trainer": self._train}

    def _train(self) -> None:
        hidden, positions = torch.ones(2, 4, requires_grad=True), torch.arange(2.0)[:, None]
        if self.ctx.settings.get("hidden") == "by_position":
            y = checkpoint(self._forward, positions, hidden, use_reentrant=True)
        else:
            y = checkpoint(partial(self._forward, hidden=hidden), positions, use_reentrant=True)
        (hidden + y).sum().backward()
        missing = [] if self._layer.weight.grad is not None else ["layer.weight"]
        self.ctx.gradients("trainer", missing)

    def _forward(self, positions: Tensor, hidden: Tensor) -> Tensor:
        result: Tensor = self._layer(hidden + positions)
        return result
