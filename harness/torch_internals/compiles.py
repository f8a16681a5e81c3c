"""Every compile, by thread: Dynamo frames, graphs given to a backend, lazy backward lowerings.

Private names: `torch._dynamo.callback.CompilationCallbackHandler.install_callbacks` and `CallbackTrigger`,
`torch._dynamo.output_graph.OutputGraph.call_user_compiler`. Verified on torch 2.11, 2.12.1, 2.13 and
2.14.1. A missing name: unavailable. Also `torch._higher_order_ops.utils._in_hop_compile`; without it all
graphs are called "graph".

torch opens `install_callbacks` around each frame compile, each lazy backward lowering and each recording of
a CUDA graph, but calls the registered callbacks only when no other thread is inside; wrapping the context
itself loses none.

* `compile_start("frame")` / `compile_end("frame", ok)`: Dynamo translates one frame, inside the compile
  lock. `ok` means that no exception left it; a frame that holds no graph is ok too.
* `compile_start("graph")` / `compile_end("graph", ok)`: the backend is called with one graph, inside its
  frame. Graphs compiled = ends with ok. A restarted analysis that had reached the backend ends with ok =
  False.
* The same with "operator_graph": an operator such as `flex_attention` or `cond`, called outside of compiled
  code, compiles its own call with the backend "eager". A dense call of a new shape makes one.
* `compile_start("cudagraph")` / …: a CUDA graph is recorded.
* `backward_lowering_enter()` / `backward_lowering_exit(ok)`: the backward graph of an earlier compile is
  lowered at its first use. It does not happen where AOTAutograd lowers the backward together with the
  forward, which it does when symbolic sizes are saved for the backward (dynamic shapes).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Protocol

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet

_WHAT = {"DYNAMO": "frame", "CUDAGRAPH_RECORDING": "cudagraph", "TRITON_AUTOTUNING": "autotune"}
_LAZY_BACKWARD = "LAZY_BACKWARD"


class CompilesSink(Protocol):
    def compile_start(self, what: str) -> None: ...

    def compile_end(self, what: str, ok: bool) -> None: ...

    def backward_lowering_enter(self) -> None: ...

    def backward_lowering_exit(self, ok: bool) -> None: ...


class _Span:
    """A context of torch's, with a call before it is entered and one after it was left."""

    __slots__ = ("_end", "_inner", "_start", "_what")

    def __init__(
        self, inner: Any, what: tuple[str, ...], start: Callable[..., None], end: Callable[..., None]
    ) -> None:
        self._inner, self._what, self._start, self._end = inner, what, start, end

    def __enter__(self) -> Any:
        self._start(*self._what)
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        try:
            return self._inner.__exit__(*error)
        finally:
            self._end(*self._what, error[0] is None)


hide(_Span.__init__)
hide(_Span.__enter__)
hide(_Span.__exit__)


class Compiles:
    """Calls a `CompilesSink`; nothing is called on the path of a warm call."""

    name = "compiles"

    def __init__(self) -> None:
        self._patches = Patches()
        self._disconnect()

    def _disconnect(self) -> None:
        self._start: Callable[..., None] = nothing
        self._end: Callable[..., None] = nothing
        self._enter: Callable[..., None] = nothing
        self._exit: Callable[..., None] = nothing

    def install(self, sink: CompilesSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        callback: Any = importlib.import_module("torch._dynamo.callback")
        handler = getattr(callback, "CompilationCallbackHandler", None)
        if not hasattr(handler, "install_callbacks") or not hasattr(callback, "CallbackTrigger"):
            return missing("torch._dynamo.callback", "CompilationCallbackHandler.install_callbacks")
        graph: Any = getattr(importlib.import_module("torch._dynamo.output_graph"), "OutputGraph", None)
        if not hasattr(graph, "call_user_compiler"):
            return missing("torch._dynamo.output_graph", "OutputGraph.call_user_compiler")
        self._start, self._end = quiet(sink.compile_start), quiet(sink.compile_end)
        self._enter, self._exit = quiet(sink.backward_lowering_enter), quiet(sink.backward_lowering_exit)
        self._wrap_callbacks(handler)
        self._wrap_backend(graph)
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._disconnect()

    def _wrap_callbacks(self, handler: Any) -> None:
        original = handler.install_callbacks

        @functools.wraps(original)
        def install_callbacks(this: Any, trigger: Any, compile_id: str) -> _Span:
            inner = original(this, trigger, compile_id)
            if trigger.name == _LAZY_BACKWARD:
                return _Span(inner, (), self._enter, self._exit)
            return _Span(inner, (_WHAT.get(trigger.name, trigger.name.lower()),), self._start, self._end)

        self._patches.set(handler, "install_callbacks", hide(install_callbacks))

    def _wrap_backend(self, graph: Any) -> None:
        original = graph.call_user_compiler
        operators: Any = importlib.import_module("torch._higher_order_ops.utils")
        in_operator: Callable[[], bool] = getattr(operators, "_in_hop_compile", lambda: False)

        @functools.wraps(original)
        def call_user_compiler(this: Any, *args: Any, **kwargs: Any) -> Any:
            ok = False
            what = "operator_graph" if in_operator() else "graph"
            self._start(what)
            try:
                result = original(this, *args, **kwargs)
                ok = True
            finally:
                self._end(what, ok)
            return result

        self._patches.set(graph, "call_user_compiler", hide(call_user_compiler))
