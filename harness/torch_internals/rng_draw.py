"""Draws from the generators that all threads share: torch's CPU and CUDA ones, and Python's `random`.

No private name is touched: functions of `torch`, `torch.nn.functional` and `random` are replaced. Verified on torch 2.11,
2.13 and 2.14.1. A call that brings a generator of its own is not reported, nor is a dropout that drops nothing. Not seen:
draws by tensor methods (`x.normal_()`), by C++ code, and by code that Dynamo compiled; a program that draws so can say it
itself (`Context.mark`).

Dynamo traces a replaced function like any of the user's and finds torch's own inside.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, nothing, quiet
from harness.torch_internals.passing import PassingSink

_TORCH = (
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "normal", "multinomial"
)  # fmt: skip
_PYTHON = ("random", "randint", "randrange", "uniform", "gauss", "choice", "choices", "sample", "shuffle")
_FUNCTIONAL: Any = torch.nn.functional


class RngDraw:
    """Reports `rng.draw`, with the function's name, on the thread that draws."""

    name = "rng_draw"

    def __init__(self) -> None:
        self._patches = Patches()
        self._passing: Callable[..., None] = nothing

    def install(self, sink: PassingSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        self._passing = quiet(sink.passing)
        for name in _TORCH:
            if hasattr(torch, name):
                self._patches.set(torch, name, self._drawing(getattr(torch, name), f"torch.{name}"))
        for name in _PYTHON:
            self._patches.set(random, name, self._drawing(getattr(random, name), f"random.{name}"))
        self._patches.set(_FUNCTIONAL, "dropout", self._dropping(_FUNCTIONAL.dropout))
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._passing = nothing

    def _drawing(self, original: Callable[..., Any], info: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def draw(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_dynamo_compiling() and kwargs.get("generator") is None:
                self._passing("rng.draw", info)
            return original(*args, **kwargs)

        return hide(draw)

    def _dropping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if not torch.compiler.is_dynamo_compiling() and training and p > 0:
                self._passing("rng.draw", "torch.nn.functional.dropout")
            return original(input, p, training, inplace)

        return hide(dropout)
