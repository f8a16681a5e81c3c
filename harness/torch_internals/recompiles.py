"""Why a function is compiled again: the guard that failed, in torch's words.

Private name: `get_and_maybe_log_recompilation_reasons` of `torch._dynamo.guards`, wherever it is bound (Dynamo's frame
compile calls it through `convert_frame`). Verified on torch 2.11, 2.13 and 2.14.1. Missing: unavailable.

It is called once a recompile, inside the compile lock, and evaluates the guards of all entries of the code object; the
first reason is of the entry that was tried first. With `error_on_recompile` it raises instead, and nothing is reported.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Protocol

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet
from harness.torch_internals.compile_lock import bindings

_MODULE, _NAME = "torch._dynamo.guards", "get_and_maybe_log_recompilation_reasons"


class RecompilesSink(Protocol):
    def recompiled(self, function: str, reason: str) -> None:
        """`function`: `name (file:line)`."""


class Recompiles:
    """Calls a `RecompilesSink` on the thread that compiles again."""

    name = "recompiles"

    def __init__(self) -> None:
        self._patches = Patches()
        self._recompiled: Callable[..., None] = nothing

    def install(self, sink: RecompilesSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        original: Callable[..., Any] | None = getattr(importlib.import_module(_MODULE), _NAME, None)
        if original is None:
            return missing(_MODULE, _NAME)

        @functools.wraps(original)
        def get_and_maybe_log_recompilation_reasons(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            reasons = original(entries, frame, *args, **kwargs)
            code = getattr(frame, "f_code", None)
            if code is not None:
                function = f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
                self._recompiled(function, str(reasons[0]) if reasons else "torch found no guard that failed")
            return reasons

        self._recompiled = quiet(sink.recompiled)
        hide(get_and_maybe_log_recompilation_reasons)
        for owner, name in bindings(original):
            self._patches.set(owner, name, get_and_maybe_log_recompilation_reasons)
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._recompiled = nothing
