"""Who is inside an FX trace, and when the window of the FX-tracing flag is open.

Private names: `torch.fx._symbolic_trace.{Tracer.trace, _patch_wrapped_functions, _new_patcher}` and the flag
itself: `_is_fx_tracing_flag` (a module global, up to 2.13) or `_get_is_fx_tracing` (thread-local, 2.14).
Verified on torch 2.11, 2.12.1, 2.13 and 2.14.1. A missing name: `install` answers that it is unavailable.

`Tracer.trace` is the only place that opens the window: `symbolic_trace`, `make_fx` (AOTAutograd's joint trace
and the higher-order operators' traces among its users) and every tracer that overrides `trace` reach it
through `super().trace`. Dynamo's own tracer never calls it.

Order within one trace, all on the tracing thread:
`trace_enter`, flag set, `nn.Module` patched, `window_open`, … , `window_closing`, `nn.Module` restored, flag
reset, `trace_exit`. An error in the traced function still passes `window_closing` and `trace_exit`; a trace
that fails before the window opens has neither `window_open` nor `window_closing`.

A sink may raise: the flag and `nn.Module` are restored. But `make_fx`, on an error before the window, wants
to log a graph that does not exist yet: what `trace_enter` raises then comes out as the context of an
AttributeError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch.fx._symbolic_trace as symbolic_trace

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet

_fx: Any = symbolic_trace


class FxTraceSink(Protocol):
    def trace_enter(self) -> None: ...

    def trace_exit(self) -> None: ...

    def window_open(self) -> None: ...

    def window_closing(self) -> None: ...


def flag_is_global() -> bool:
    """Whether the flag is one for the process (up to 2.13), not one for each thread (2.14)."""
    return hasattr(_fx, "_is_fx_tracing_flag")


def flag_value() -> bool:
    """The flag as this thread sees it."""
    if flag_is_global():
        return bool(_fx._is_fx_tracing_flag)
    return bool(_fx._get_is_fx_tracing())


class _Window:
    """`_new_patcher()`'s context, with a hook at the end of its body, before it undoes the patches."""

    __slots__ = ("_closing", "_inner")

    def __init__(self, inner: Any, closing: Callable[..., None]) -> None:
        self._inner, self._closing = inner, closing

    def __enter__(self) -> Any:
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        try:
            self._closing()
        finally:
            # On an exception of the hook the patches are undone all the same.
            suppressed = self._inner.__exit__(*error)
        return suppressed


hide(_Window.__init__)
hide(_Window.__enter__)
hide(_Window.__exit__)


class FxTrace:
    """Calls a `FxTraceSink`; one trace costs four calls."""

    name = "fx_trace"

    def __init__(self) -> None:
        self._patches = Patches()
        self._disconnect()

    def _disconnect(self) -> None:
        self._enter: Callable[..., None] = nothing
        self._exit: Callable[..., None] = nothing
        self._open: Callable[..., None] = nothing
        self._closing: Callable[..., None] = nothing

    def install(self, sink: FxTraceSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        wanted = ["Tracer", "_patch_wrapped_functions", "_new_patcher"]
        absent = [name for name in wanted if not hasattr(_fx, name)]
        if not flag_is_global() and not hasattr(_fx, "_get_is_fx_tracing"):
            absent.append("_is_fx_tracing_flag")
        if absent:
            return missing("torch.fx._symbolic_trace", *absent)
        self._enter, self._exit = quiet(sink.trace_enter), quiet(sink.trace_exit)
        self._open, self._closing = quiet(sink.window_open), quiet(sink.window_closing)
        self._wrap_trace(_fx.Tracer.trace)
        self._wrap_window(_fx._patch_wrapped_functions, _fx._new_patcher)
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._disconnect()

    def _wrap_trace(self, original: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def trace(tracer: Any, *args: Any, **kwargs: Any) -> Any:
            self._enter()
            try:
                return original(tracer, *args, **kwargs)
            finally:
                self._exit()

        self._patches.set(_fx.Tracer, "trace", hide(trace))

    def _wrap_window(self, patch_functions: Callable[..., Any], new_patcher: Callable[..., Any]) -> None:
        @functools.wraps(patch_functions)
        def _patch_wrapped_functions(patcher: Any) -> Any:
            result = patch_functions(patcher)
            self._open()
            return result

        @functools.wraps(new_patcher)
        def _new_patcher() -> _Window:
            return _Window(new_patcher(), self._closing)

        self._patches.set(_fx, "_patch_wrapped_functions", hide(_patch_wrapped_functions))
        self._patches.set(_fx, "_new_patcher", hide(_new_patcher))
