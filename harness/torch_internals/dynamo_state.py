"""Dynamo's process-wide and per-thread state at the moments that matter: the stance set, the recompile limit read.

Private names: `torch._dynamo.eval_frame._set_stance` (what `torch.compiler.set_stance` calls, on entry and
on exit), wherever it is bound, and
`torch._dynamo.convert_frame.exceeds_recompile_limit` (asked at each compile whether the code object has too many entries).
Verified on torch 2.11, 2.13 and 2.14.1. A missing name: unavailable.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet
from harness.torch_internals.compile_lock import bindings
from harness.torch_internals.dynamo_config import read
from harness.torch_internals.passing import PassingSink


class StanceSet:
    """Reports `stance.set` with the stance, after it was set."""

    name = "stance_set"

    def __init__(self) -> None:
        self._patches = Patches()
        self._passing: Callable[..., None] = nothing

    def install(self, sink: PassingSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        module: Any = importlib.import_module("torch._dynamo.eval_frame")
        if not hasattr(module, "_set_stance"):
            return missing("torch._dynamo.eval_frame", "_set_stance")
        original: Callable[..., Any] = module._set_stance

        @functools.wraps(original)
        def _set_stance(stance: Any) -> Any:
            prior = original(stance)
            self._passing("stance.set", str(getattr(stance, "stance", stance)))
            return prior

        self._passing = quiet(sink.passing)
        hide(_set_stance)
        for owner, name in bindings(original):
            self._patches.set(owner, name, _set_stance)
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._passing = nothing


class ConfigRead:
    """Reports `config.read` with the limit that this thread sees, before Dynamo decides by it."""

    name = "config_read"

    def __init__(self) -> None:
        self._patches = Patches()
        self._passing: Callable[..., None] = nothing

    def install(self, sink: PassingSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        module: Any = importlib.import_module("torch._dynamo.convert_frame")
        if not hasattr(module, "exceeds_recompile_limit"):
            return missing("torch._dynamo.convert_frame", "exceeds_recompile_limit")
        original: Callable[..., Any] = module.exceeds_recompile_limit

        @functools.wraps(original)
        def exceeds_recompile_limit(*args: Any, **kwargs: Any) -> Any:
            self._passing("config.read", str(read().recompile_limit))
            return original(*args, **kwargs)

        self._passing = quiet(sink.passing)
        self._patches.set(module, "exceeds_recompile_limit", hide(exceeds_recompile_limit))
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._passing = nothing
