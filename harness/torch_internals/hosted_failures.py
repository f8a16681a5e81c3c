"""On the device in host memory: what a saved tensor's hook raises comes out of backward, and does not abort the process.

Torch's guard of a device that is registered from Python calls Python for the device's type, also in functions that may not
throw (`exchangeStream`), also while what a hook has raised on the engine's thread is under way: std::terminate, "terminate
called without an active exception". So it is on torch 2.11, 2.13 and 2.14.1, in every backward whose non-reentrant checkpoint
raises in its recompute. CUDA's guard calls no Python, and there the exception comes out of backward.

So on this device an unpack hook does not raise. It gives back what is no tensor, at which torch raises a TypeError without
any Python exception under way, and whoever asked for the backward gets the hook's own exception, traceback and all.

Private names: `_engine_run_backward`, as in `engine`. Public ones that are patched: `saved_tensors_hooks.__init__`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from harness.torch_internals.base import AVAILABLE, Availability, hide, missing
from harness.torch_internals.engine import graph_task_id

_NAME = "_engine_run_backward"
_autograd: Any = torch.autograd

_RAISED = "HookRaised"
_SAID = re.compile(rf"\b{_RAISED}(\d+)\b")
_numbers = count(1)
_raised: dict[int, BaseException] = {}
"""By number, from the hook until the exception is out of backward. More than one only where backwards are in each other."""


def let_hooks_raise() -> Availability:
    """Once a process, and for good; on the main thread, before the first backward."""
    if not hasattr(_autograd.graph, _NAME):
        return missing("torch.autograd.graph", _NAME)
    original: Callable[..., Any] = getattr(_autograd.graph, _NAME)
    if getattr(_autograd, _NAME, None) is not original:
        return missing("torch.autograd", _NAME)

    @functools.wraps(original)
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except TypeError as error:
            found = _SAID.search(str(error))
            raised = _raised.pop(int(found[1]), None) if found else None
            if raised is None:
                raise
        raise raised  # outside of the handler, so that torch's TypeError becomes no part of it

    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    init = hooks.__init__

    @functools.wraps(init)
    def begin(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        init(self, pack_hook, _without_raising(unpack_hook))

    hooks.__init__ = hide(begin)
    _autograd.graph._engine_run_backward = _autograd._engine_run_backward = hide(_engine_run_backward)
    return AVAILABLE


def _without_raising(unpack_hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(unpack_hook)
    def unpack(packed: Any) -> Any:
        try:
            return unpack_hook(packed)
        except Exception as error:
            if graph_task_id() == -1:
                raise  # not asked for by the engine
            number = next(_numbers)
            _raised[number] = error
        return type(f"{_RAISED}{number}", (), {})()  # torch's message names the type of what is no tensor

    return hide(unpack)
