"""Small programs in which compiled attention runs uncompiled, without a word. All on the CPU, forward only."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import flex_attention

from harness.core.workload import Worker
from harness.torch_internals import dynamo_config

from .parts import Parts
from .shown import Shown

LENGTHS = 10
"""More than the recompile limit of 8."""


def attend(query: Tensor) -> Tensor:
    """Attention of [1, 1, L, 16] to itself; returns the same shape."""
    out = flex_attention(query, query, query)
    assert isinstance(out, Tensor)
    return out


def triple(x: Tensor) -> Tensor:
    """What is traced."""
    return x * 3


class Cure(Parts):
    """`caller` calls compiled attention while `tracer` traces with `make_fx`. Run it with `dynamo = "nested_trace_allowed"`.

    The outcome `dense` shows it.
    """

    def build(self) -> None:
        """Compiles at the first call, if that is let compile."""
        self._attend = torch.compile(attend, backend="eager")

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One trace, one call."""
        return {"tracer": self._trace, "caller": self._call}

    def _trace(self) -> None:
        make_fx(triple)(torch.ones(2))

    def _call(self) -> None:
        self._attend(_query(16))


class ManyLengths(Shown):
    """`caller` calls compiled attention with more lengths than the default limit allows, 64 being set on the main thread.

    Run it with `dynamo = "limit_in_main"`. Setting `limit = "by_worker"`: the worker sets it too. Effect: some ran
    uncompiled.
    """

    def build(self) -> None:
        """On the main thread, whose limit is raised already."""
        self._attend = _Noting()

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One worker is enough."""
        return {"caller": self._call}

    def _call(self) -> None:
        if self.ctx.settings.get("limit") == "by_worker":
            dynamo_config.apply(dynamo_config.DynamoSettings(recompile_limit=64))
        self.ctx.fact("", "recompile_limit", dynamo_config.read().recompile_limit)
        for i in range(LENGTHS):
            self._attend(_query(16 + i))

    def effect(self) -> bool:
        """How many is a fact of its own."""
        self.ctx.fact("", "uncompiled", self._attend.uncompiled)
        return self._attend.uncompiled > 0


class SharedCache(Shown):
    """Two drafters of five lengths each, compiled separately: ten entries for one code object, or (`code = "each"`) five.

    Effect: some calls ran uncompiled.
    """

    def build(self) -> None:
        """A `torch.compile` of its own for each drafter does not give it a cache of its own: the code object does."""
        own = self.scenario.code == "each"
        self._attends = [_Noting(i if own else 0) for i in range(2)]

    def workers(self) -> list[Worker]:
        """Both alike."""
        return [Worker(f"drafter-{i}", "drafter", self.device, partial(self._train, i)) for i in range(2)]

    def _train(self, number: int) -> None:
        self.step(f"drafter-{number}", lambda: self._call(number))

    def _call(self, number: int) -> None:
        for i in range(LENGTHS // 2):
            self._attends[number](_query(16 + number * LENGTHS // 2 + i))

    def effect(self) -> bool:
        """How many is a fact of its own."""
        uncompiled = sum(each.uncompiled for each in self._attends)
        self.ctx.fact("", "uncompiled", uncompiled)
        return uncompiled > 0


class Warned(Shown):
    """`caller` calls uncompiled attention while `compiler` compiles, and again afterwards. Effect: nobody was warned."""

    def build(self) -> None:
        """torch's warning comes once a process."""
        self._compiled = torch.compile(triple, backend="eager")
        self._warnings = 0
        warnings.simplefilter("always")
        warnings.showwarning = self._note

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `call` before each call, `called` after; `compiled` after the compile."""
        return {"compiler": self._compile, "caller": self._call}

    def _compile(self) -> None:
        self._compiled(torch.ones(2))
        self.ctx.mark("compiler", "compiled")

    def _call(self) -> None:
        for _ in range(2):
            self.ctx.mark("caller", "call")
            attend(_query(16))
            self.ctx.mark("caller", "called")

    def _note(self, message: Warning | str, *_: object, **__: object) -> None:
        self._warnings += "without torch.compile" in str(message)

    def effect(self) -> bool:
        """Two calls, no warning."""
        return self._warnings == 0


class EagerPair(Shown):
    """Two workers call uncompiled attention. Effect: Dynamo's recompile limits are not what they were."""

    def build(self) -> None:
        """What the limits are before."""
        self._before = dynamo_config.read()

    def workers(self) -> list[Worker]:
        """Both alike."""
        return [Worker(f"caller-{i}", "caller", self.device, partial(self._work, i)) for i in range(2)]

    def _work(self, number: int) -> None:
        self.step(f"caller-{number}", self._call)

    def _call(self) -> None:
        attend(_query(16))

    def effect(self) -> bool:
        """As the main thread sees them."""
        now = dynamo_config.read()
        self.ctx.fact("", "recompile_limit", now.recompile_limit)
        return now != self._before


class _Noting:
    """A compiled stand-in for attention that counts how often its Python body ran, that is: ran uncompiled."""

    def __init__(self, number: int = 0) -> None:
        self.uncompiled = 0

        def scores(query: Tensor) -> Tensor:
            if not torch.compiler.is_dynamo_compiling():
                self.uncompiled += 1
            return (query @ query.mT).softmax(-1) @ query

        if number:  # else all share the code object that Python made for the function above
            name = f"scores_{number}"
            scores.__code__ = scores.__code__.replace(co_name=name, co_qualname=name)
        self._compiled = torch.compile(scores, backend="eager", dynamic=False)

    def __call__(self, query: Tensor) -> Tensor:
        result: Tensor = self._compiled(query)
        return result


def _query(length: int) -> Tensor:
    """[1, 1, length, 16], the same numbers for every length."""
    return torch.ones(1, 1, length, 16)
