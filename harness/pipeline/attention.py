"""The drafter's attention: `flex_attention` under a block mask, compiled or not.

Dynamo keeps compiled code on the *code object* of the function it compiled. All drafters that compile
`attend` therefore share one cache, whatever thread they run on and however often `torch.compile` was called;
`own_code=True` gives a drafter a code object, and so a cache, to itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import FunctionType
from typing import Literal, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

P = ParamSpec("P")
R = TypeVar("R")

AttentionFn = Callable[[Tensor, Tensor, Tensor, BlockMask | None], Tensor]
Region = Callable[[], AbstractContextManager[None]]
Unit = Literal["attention", "layer", "drafter", "none"]

_copies = itertools.count(1)


def attend(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None = None) -> Tensor:
    """Grouped-query attention, not causal: [Bt, Hq, q, D] from keys and values [Bt, Hkv, S + q, D].

    Without a mask everything is seen; that goes through SDPA, which needs no compiler to be fast. A query
    that the mask leaves with nothing to see (a block with keep = 0) gets zeros and passes no gradient on.
    """
    if block_mask is None:
        return scaled_dot_product_attention(query, key, value, enable_gqa=True)
    return flex_attention(query, key, value, block_mask=block_mask, enable_gqa=True)


@dataclass(frozen=True)
class Compilation:
    """What `torch.compile` is put around, and how.

    unit     the attention call, a decoder layer, the whole stack of layers, or nothing
    backend, dynamic, mode   as `torch.compile` takes them; `mode="reduce-overhead"` is CUDA-graph trees
    own_code compile a copy of the code object, so that the compiled code is shared with nobody
    """

    unit: Unit = "none"
    backend: str = "inductor"
    dynamic: bool | None = None
    mode: str | None = None
    own_code: bool = False

    def of(self, unit: Unit, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, compiled if `unit` is what this compiles. Nothing is compiled before the first call."""
        if unit != self.unit:
            return function
        return compiled(function, backend=self.backend, dynamic=self.dynamic, mode=self.mode, own_code=self.own_code)


EAGER = Compilation()


def make_attention(
    compile: Unit = "attention",
    *,
    backend: str = "inductor",
    dynamic: bool | None = None,
    mode: str | None = None,
    own_code: bool = False,
) -> AttentionFn:
    """`attend`, compiled if `compile` is "attention" (else something larger is, or nothing)."""
    return Compilation(compile, backend, dynamic, mode, own_code).of("attention", attend)


def compiled(
    function: Callable[P, R],
    *,
    backend: str = "inductor",
    dynamic: bool | None = None,
    mode: str | None = None,
    own_code: bool = False,
) -> Callable[P, R]:
    """`torch.compile` of a plain function, on request of a copy with a code object of its own."""
    if own_code:
        function = with_own_code(function)
    return torch.compile(function, backend=backend, dynamic=dynamic, mode=mode)


def with_own_code(function: Callable[P, R]) -> Callable[P, R]:
    """A copy of `function` whose code object is its own, and told apart in tracebacks by a number.

    The number is not decoration: code objects compare equal by value, and parts of Dynamo key on that.
    Raises `TypeError` for a callable that is not a Python function.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"only a Python function has a code object to copy, not {function!r}")
    name = f"{function.__name__}_{next(_copies)}"
    code = function.__code__.replace(co_name=name, co_qualname=name)
    copy = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    copy.__doc__ = function.__doc__
    return cast(Callable[P, R], copy)


def inside(region: Region | None, function: Callable[P, R]) -> Callable[P, R]:
    """`function`, every call of it inside a fresh `region()`; itself when there is no region.

    Put around compiled code, never into it. A checkpoint's recompute calls it again, on CUDA from a thread of
    the autograd engine: whatever `region` needs to know it must hold, not look up by thread.
    """
    if region is None:
        return function

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with region():
            return function(*args, **kwargs)

    return call
