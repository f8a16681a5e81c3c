"""Makes the FX-tracing flag one per thread, as torch 2.14 has it, on torch 2.11 to 2.13.

Private names, all of `torch.fx._symbolic_trace`: `_is_fx_tracing_flag`, `is_fx_tracing`,
`is_fx_symbolic_tracing`, `Tracer.trace`. Verified on torch 2.11, 2.12.1 and 2.13; on other versions `install`
refuses, on 2.14 because the flag is per thread already.

How: the wrapper of `Tracer.trace` keeps a flag in thread-local storage; the two functions that read the flag
read that one; and the module gets a class with a property, so that code outside which reads or sets the
attribute (the higher-order operators switch it off for a while) reaches the thread's flag too. Only
`Tracer.trace` itself still writes the module's global, and only to put it back.

Out of its reach: the patcher. While one thread is in the window, `nn.Module.__call__` and `__getattr__` are
patched for all threads, so `module-call-under-trace` remains. Of `fx-flag-stuck` the flag is cured and the
other half is not: of two traces that interleave, the one that ends last raises "CURRENT_PATCHER is None in
finally block", and `nn.Module` stays patched. All this is so in 2.14 too.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
import torch.fx._symbolic_trace as symbolic_trace

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing
from harness.torch_internals.fx_flag import SEAT, exchange_code
from harness.torch_internals.versions import TESTED, release

_fx: Any = symbolic_trace
_NAME = "torch.fx._symbolic_trace"
_FLAG = "_is_fx_tracing_flag"
_SEAT = "__harness_thread_fx_flag__"


class _ThreadFlag(threading.local):
    value = False


_flag = _ThreadFlag()


def _read() -> bool:
    return _flag.value


def _is_fx_tracing() -> bool:
    is_fx_tracing_warning()  # type: ignore[name-defined]  # noqa: F821
    return __harness_thread_fx_flag__()  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _is_fx_symbolic_tracing() -> bool:
    return _flag.value and not torch.compiler.is_compiling()


class _SymbolicTraceModule(ModuleType):
    """The module, with its flag attribute (as others see it) in thread-local storage."""

    @property
    def _is_fx_tracing_flag(self) -> bool:
        return _flag.value

    @_is_fx_tracing_flag.setter
    def _is_fx_tracing_flag(self, value: bool) -> None:
        _flag.value = value


class ThreadLocalFx:
    """No sink. Install and uninstall while no thread traces; compiled callables made before are covered."""

    name = "thread_local_fx"

    def __init__(self) -> None:
        self._patches = Patches()
        self._code: CodeType | None = None

    def install(self, sink: object = None) -> Availability:
        self._patches.refuse_second_install(self.name)
        if not hasattr(_fx, _FLAG) and hasattr(_fx, "_get_is_fx_tracing"):
            return Availability(False, f"torch {torch.__version__} has a flag for each thread already")
        if release()[:2] not in TESTED:
            known = ", ".join(f"{major}.{minor}" for major, minor in sorted(TESTED) if minor < 14)
            return Availability(False, f"not tested on torch {torch.__version__}, only on {known}")
        if not isinstance(getattr(_fx, "is_fx_tracing", None), FunctionType) or SEAT.unavailable:
            return missing(_NAME, "is_fx_tracing", "is_fx_symbolic_tracing")
        if type(sys.modules[_NAME]) is not ModuleType:
            return Availability(False, f"{_NAME} has a class of its own already")
        if vars(_fx)[_FLAG]:
            return Availability(False, "a thread is in an FX trace, or the flag is stuck")
        self._wrap_trace(_fx.Tracer.trace)
        setattr(_fx, _SEAT, _read)
        self._code = _fx.is_fx_tracing.__code__
        exchange_code(_fx.is_fx_tracing, _is_fx_tracing.__code__)
        SEAT.use_reader(_is_fx_symbolic_tracing)
        sys.modules[_NAME].__class__ = _SymbolicTraceModule
        return AVAILABLE

    def uninstall(self) -> None:
        if self._code is None:
            return
        sys.modules[_NAME].__class__ = ModuleType
        SEAT.use_reader(None)
        _fx.is_fx_tracing.__code__ = self._code
        self._code = None
        delattr(_fx, _SEAT)
        self._patches.remove()

    def _wrap_trace(self, original: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def trace(tracer: Any, *args: Any, **kwargs: Any) -> Any:
            before = _flag.value
            _flag.value = True
            try:
                return original(tracer, *args, **kwargs)
            finally:
                _flag.value = before

        self._patches.set(_fx.Tracer, "trace", hide(trace))
