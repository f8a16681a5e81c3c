"""Who asks `torch.compiler.is_compiling()`, and what it is told.

Private names: the *code* of the public function `torch.compiler.is_compiling` is exchanged (see `fx_flag`); Dynamo knows it
by identity and folds it, so compiled code never asks. Verified on torch 2.11, 2.13 and 2.14.1. Where the function takes
arguments, or is a closure: unavailable.

torch asks it in its own compiler all the time; only what user code, `torch.optim`, `torch.nn` and `torch.utils` ask is
reported, since these take another branch on True.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

from harness.torch_internals.base import AVAILABLE, Availability, hide, nothing, quiet
from harness.torch_internals.fx_flag import exchange_code
from harness.torch_internals.passing import PassingSink

_compiler: Any = torch.compiler
_SEAT = "__harness_is_compiling__"
_TELLING = ("torch.optim", "torch.nn", "torch.utils")


def _seated() -> bool:
    return __harness_is_compiling__()  # type: ignore[name-defined,no-any-return]  # noqa: F821


class CompilingRead:
    """Reports `is_compiling.read` with the answer, after it was read."""

    name = "compiling_read"

    def __init__(self) -> None:
        self._code: CodeType | None = None
        self._passing: Callable[..., None] = nothing
        self._original: Callable[[], bool] = lambda: False

    def install(self, sink: PassingSink) -> Availability:
        if self._code is not None or hasattr(_compiler, _SEAT):
            raise RuntimeError(f"the adapter {self.name!r} is installed already; uninstall it first")
        function = getattr(_compiler, "is_compiling", None)
        if not isinstance(function, FunctionType):
            return Availability(False, f"torch.compiler.is_compiling of torch {torch.__version__} is no Python function")
        if function.__code__.co_freevars or function.__code__.co_argcount:
            return Availability(False, f"torch.compiler.is_compiling of torch {torch.__version__} takes arguments")
        self._passing = quiet(sink.passing)
        self._code = function.__code__
        self._original = FunctionType(self._code, function.__globals__, function.__name__)
        setattr(_compiler, _SEAT, self._answer)
        exchange_code(function, _seated.__code__)
        return AVAILABLE

    def uninstall(self) -> None:
        if self._code is not None:
            _compiler.is_compiling.__code__ = self._code
            self._code = None
            delattr(_compiler, _SEAT)
            self._passing = nothing

    def _answer(self) -> bool:
        answer = self._original()
        # Frame 1 is `is_compiling` itself, frame 2 who asks.
        asks = str(sys._getframe(2).f_globals.get("__name__", ""))
        if asks.split(".")[0] != "torch" or asks.startswith(_TELLING):
            self._passing("is_compiling.read", "true" if answer else "false")
        return answer


hide(CompilingRead._answer)
