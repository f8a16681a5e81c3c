"""The one place that changes `is_fx_symbolic_tracing`, shared by `flag_check` and `thread_local_fx`.

Private name: `torch.fx._symbolic_trace.is_fx_symbolic_tracing` (2.9 and later). Verified on torch 2.11,
2.12.1, 2.13 and 2.14.1. The *code* of that function is exchanged, not the function: a compiled callable
captures the function when it is made, `torch.export.unflatten` imports it by name, and Dynamo knows it by
identity (it folds it to False). All of them keep working, whenever the exchange happens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Protocol

import torch.fx._symbolic_trace as symbolic_trace

from harness.torch_internals.base import hide

_fx: Any = symbolic_trace
_NAME = "is_fx_symbolic_tracing"
_SEAT = "__harness_is_fx_symbolic_tracing__"
_CALLER = "torch._dynamo.eval_frame"  # where the compiled callable's wrapper lives


class CheckObserver(Protocol):
    def check_enter(self) -> None: ...

    def checked(self, answer: bool) -> None: ...


def exchange_code(function: FunctionType, code: CodeType) -> None:
    """Gives `function` other code that calls nothing but globals; names and file stay, Dynamo skips it."""
    old = function.__code__
    function.__code__ = code.replace(
        co_name=old.co_name, co_qualname=old.co_qualname, co_filename=old.co_filename
    )
    hide(function)


def _seated() -> bool:
    return __harness_is_fx_symbolic_tracing__()  # type: ignore[name-defined,no-any-return]  # noqa: F821


class FlagSeat:
    """What `is_fx_symbolic_tracing` does: an optional reader in place of torch's, an optional observer.

    `unavailable` is the reason why it cannot be exchanged on this torch, or "".
    """

    def __init__(self) -> None:
        self._reader: Callable[[], bool] | None = None
        self._observer: CheckObserver | None = None
        self._code: CodeType | None = None
        self._original: Callable[[], bool] = lambda: False

    @property
    def unavailable(self) -> str:
        function = getattr(_fx, _NAME, None)
        if not isinstance(function, FunctionType):
            return f"torch has no function torch.fx._symbolic_trace.{_NAME}"
        if function.__code__.co_freevars or function.__code__.co_argcount:
            return f"torch.fx._symbolic_trace.{_NAME} takes arguments or is a closure on this torch"
        return ""

    @property
    def observer(self) -> CheckObserver | None:
        return self._observer

    def use_reader(self, reader: Callable[[], bool] | None) -> None:
        """Answers with `reader()` from now on; None: torch's own reading again."""
        self._reader = reader
        self._exchange()

    def use_observer(self, observer: CheckObserver | None) -> None:
        """Reports each check of a compiled callable to `observer`, on its thread; None: to nobody."""
        self._observer = observer
        self._exchange()

    def _exchange(self) -> None:
        function: FunctionType = getattr(_fx, _NAME)
        wanted = self._reader is not None or self._observer is not None
        if wanted and self._code is None:
            self._code = function.__code__
            self._original = FunctionType(self._code, function.__globals__, function.__name__)
            setattr(_fx, _SEAT, self._answer)
            exchange_code(function, _seated.__code__)
        elif not wanted and self._code is not None:
            function.__code__ = self._code
            self._code = None
            delattr(_fx, _SEAT)

    def _answer(self) -> bool:
        observer = self._observer
        read = self._reader or self._original
        # Frame 1 is `is_fx_symbolic_tracing` itself. Only the compiled callable's own check is reported:
        # unflattened modules of torch.export ask the same function.
        if observer is None or sys._getframe(2).f_globals.get("__name__") != _CALLER:
            return read()
        observer.check_enter()
        answer = read()
        observer.checked(answer)
        return answer


hide(FlagSeat._answer)
SEAT = FlagSeat()
