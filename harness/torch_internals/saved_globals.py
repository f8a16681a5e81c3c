"""Process-wide state that torch saves and later puts back: in a compile, in inductor, in a checkpoint's recompute.

Private names: `torch._dynamo.convert_frame.{trace_frame, setup_compile_debug}`, `torch._dynamo.utils.preserve_rng_state`;
and `torch.random.fork_rng`, which is public. Verified on torch 2.11, 2.13 and 2.14.1. A missing private name: unavailable.

`trace_frame` is wrapped by torch in `preserve_global_state`: it saves (torch's generators, default dtype, deterministic
algorithms, grad mode, fp32 precision; up to 2.11 Python's `random` too), then calls `setup_compile_debug`, translates the
frame, calls `close()` on what that returned, and puts everything back. So `setup_compile_debug` returning is "saved", its
`close` is "restoring", and the return of `trace_frame` is "restored".

From torch 2.13 on the state of Python's `random` is saved and put back in C++, around the compile lock: before
`compile_lock.acquired` and after `compile_lock.released`, with no hook of its own.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet
from harness.torch_internals.compile_lock import bindings
from harness.torch_internals.passing import PassingSink

_FRAME, _UTILS = "torch._dynamo.convert_frame", "torch._dynamo.utils"
_RANDOM: Any = torch.random


class _Saved:
    """A context of torch's that saves on entry and puts back on exit, with reports around both."""

    def __init__(self, inner: Any, info: str, passing: Callable[..., None]) -> None:
        self._inner, self._info, self._passing = inner, info, passing

    def __enter__(self) -> Any:
        result = self._inner.__enter__()
        self._passing("globals.saved", self._info)
        return result

    def __exit__(self, *error: Any) -> Any:
        self._passing("globals.restoring", self._info)
        try:
            return self._inner.__exit__(*error)
        finally:
            self._passing("globals.restored", self._info)


class _Cleanup:
    """What `setup_compile_debug` returns, with a report before it is closed."""

    def __init__(self, inner: Any, passing: Callable[..., None]) -> None:
        self._inner, self._passing = inner, passing

    def close(self) -> None:
        self._passing("globals.restoring", "frame")
        self._inner.close()


for _method in (_Saved.__init__, _Saved.__enter__, _Saved.__exit__, _Cleanup.__init__, _Cleanup.close):
    hide(_method)


class SavedGlobals:
    """Reports `globals.saved`, `globals.restoring` and `globals.restored`, as "frame", "rng" or "fork_rng"."""

    name = "saved_globals"

    def __init__(self) -> None:
        self._patches = Patches()
        self._passing: Callable[..., None] = nothing

    def install(self, sink: PassingSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        frame, utils = importlib.import_module(_FRAME), importlib.import_module(_UTILS)
        absent = [name for name in ("trace_frame", "setup_compile_debug") if not hasattr(frame, name)]
        if absent:
            return missing(_FRAME, *absent)
        if not hasattr(utils, "preserve_rng_state"):
            return missing(_UTILS, "preserve_rng_state")
        self._passing = quiet(sink.passing)
        self._wrap_frame(frame)
        self._wrap_context(utils.preserve_rng_state, "rng")
        self._wrap_context(_RANDOM.fork_rng, "fork_rng")
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._passing = nothing

    def _wrap_frame(self, frame: Any) -> None:
        set_up: Callable[..., Any] = frame.setup_compile_debug
        trace: Callable[..., Any] = frame.trace_frame

        @functools.wraps(set_up)
        def setup_compile_debug() -> _Cleanup:
            cleanup = set_up()
            self._passing("globals.saved", "frame")
            return _Cleanup(cleanup, self._passing)

        @functools.wraps(trace)
        def trace_frame(*args: Any, **kwargs: Any) -> Any:
            try:
                return trace(*args, **kwargs)
            finally:
                self._passing("globals.restored", "frame")

        self._patches.set(frame, "setup_compile_debug", hide(setup_compile_debug))
        self._patches.set(frame, "trace_frame", hide(trace_frame))

    def _wrap_context(self, original: Callable[..., Any], info: str) -> None:
        @functools.wraps(original)
        def context(*args: Any, **kwargs: Any) -> _Saved:
            return _Saved(original(*args, **kwargs), info, self._passing)

        hide(context)
        for owner, name in bindings(original):
            self._patches.set(owner, name, context)
