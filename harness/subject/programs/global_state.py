"""Small programs in which one thread's compile or checkpoint sets back, or shows, what belongs to all. All on the CPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .shown import Shown


def double(x: Tensor) -> Tensor:
    """What is compiled."""
    return x * 2


class Drawing(Shown):
    """`compiler` compiles; `drawer` draws from torch's and from Python's generator, twice. Effect: the same numbers."""

    def build(self) -> None:
        """Seeds are fixed, so that equal numbers are no chance."""
        torch.manual_seed(0)
        random.seed(0)
        self._compiled = torch.compile(double, backend="eager")
        self._drawn: list[tuple[list[float], float]] = []

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `compiled` after the compile, `drew` after each drawing."""
        return {"compiler": self._compile, "drawer": self._draw}

    def _compile(self) -> None:
        self._compiled(torch.ones(2))
        self.ctx.mark("compiler", "compiled")

    def _draw(self) -> None:
        for _ in range(2):
            self.ctx.mark("drawer", "draw")
            self._drawn.append((torch.rand(4).tolist(), random.random()))
            self.ctx.mark("drawer", "drew")

    def effect(self) -> bool:
        """By torch's generator; Python's is a fact of its own."""
        (first, first_python), (second, second_python) = self._drawn
        self.ctx.fact("", "python_rewound", first_python == second_python)
        return first == second


class Recompute(Shown):
    """`trainer` runs dropout under a checkpoint (the axis `checkpoint` says which kind), `drawer` draws once.

    Effect: `trainer`'s gradient is not the one of the units that its forward kept.
    """

    def build(self) -> None:
        """Nothing is compiled."""
        torch.manual_seed(0)
        self._kept: Tensor | None = None
        self._gradient: Tensor | None = None

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Mark: `forward` after the forward."""
        return {"trainer": self._train, "drawer": self._draw}

    def _train(self) -> None:
        x = torch.ones(64, requires_grad=True)
        reentrant = self.scenario.checkpoint != "non_reentrant"
        y = checkpoint(torch.nn.functional.dropout, x * 1, 0.5, use_reentrant=reentrant)
        self.ctx.mark("trainer", "forward")
        y.sum().backward()
        self._kept, self._gradient = y.detach(), x.grad

    def _draw(self) -> None:
        self.ctx.mark("drawer", "draw")
        torch.rand(4)

    def effect(self) -> bool:
        """The derivative of dropout at one is what dropout gave."""
        return self._kept is not None and self._gradient is not None and not torch.equal(self._kept, self._gradient)


class Settings(Shown):
    """`compiler` compiles; `setter` seeds, and sets default dtype and deterministic algorithms. Effect: one was undone."""

    def build(self) -> None:
        """The function is compiled at its first call."""
        self._compiled = torch.compile(double, backend="eager")
        self._undone: list[str] = []

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `set` before the setter sets, `was_set` after; `compiled` after the compile."""
        return {"compiler": self._compile, "setter": self._set}

    def _compile(self) -> None:
        self._compiled(torch.ones(2))
        self.ctx.mark("compiler", "compiled")

    def _set(self) -> None:
        self.ctx.mark("setter", "set")
        torch.manual_seed(1)
        seeded = torch.get_rng_state()
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        self.ctx.mark("setter", "was_set")
        now = {
            "manual_seed": torch.equal(torch.get_rng_state(), seeded),
            "set_default_dtype": torch.get_default_dtype() == torch.float64,
            "use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        }
        self._undone = [name for name, holds in now.items() if not holds]
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)

    def effect(self) -> bool:
        """Which ones is a fact of its own."""
        self.ctx.fact("", "undone", self._undone)
        return bool(self._undone)


class OptimizerStep(Shown):
    """`compiler` compiles; `trainer` takes a step of eager AdamW. Effect: other weights than the same step gives alone."""

    def build(self) -> None:
        """The step that nobody disturbs is taken here."""
        self._compiled = torch.compile(double, backend="eager")
        self._alone = _adamw_steps(lambda: None)
        self._weights = self._alone

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `step` before the optimizer's steps, `stepped` after; `compiled` after the compile."""
        return {"compiler": self._compile, "trainer": self._train}

    def _compile(self) -> None:
        self._compiled(torch.ones(2))
        self.ctx.mark("compiler", "compiled")

    def _train(self) -> None:
        self._weights = _adamw_steps(lambda: self.ctx.mark("trainer", "step"))
        self.ctx.mark("trainer", "stepped")

    def effect(self) -> bool:
        """To the bit: it is the same arithmetic."""
        difference = (self._weights - self._alone).abs().max().item()
        self.ctx.fact("", "largest_difference", difference)
        return difference > 0


class Stance(Shown):
    """`setter` sets the stance `force_eager` for a block of its own; `caller` calls a compiled function.

    Effect: the caller's function ran uncompiled.
    """

    def build(self) -> None:
        """The function notes each run of its own Python body."""
        self._ran_eager: list[bool] = []

        def function(x: Tensor) -> Tensor:
            if not torch.compiler.is_dynamo_compiling():
                self._ran_eager.append(True)
            return x * 2

        self._compiled = torch.compile(function, backend="eager")

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `leave` inside the setter's block, `left` after it; `call` and `called` around the call."""
        return {"setter": self._set, "caller": self._call}

    def _set(self) -> None:
        with torch.compiler.set_stance("force_eager"):
            self.ctx.mark("setter", "leave")
        self.ctx.mark("setter", "left")

    def _call(self) -> None:
        self.ctx.mark("caller", "call")
        self._compiled(torch.ones(2))
        self.ctx.mark("caller", "called")

    def effect(self) -> bool:
        """Compiled, the body is not run."""
        return bool(self._ran_eager)


def _adamw_steps(before: Callable[[], None]) -> Tensor:
    """The weights after three steps of AdamW on fixed gradients; `before` is called once, when all is made."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(64, generator=generator).requires_grad_()
    optimizer = torch.optim.AdamW([weights], lr=0.1, foreach=False)
    gradients = [torch.randn(64, generator=generator) for _ in range(3)]
    before()
    for gradient in gradients:
        weights.grad = gradient
        optimizer.step()
    return weights.detach()
