"""Higher-order operators called outside of compiled code (`flex_attention`, `cond`), which compile their own call.

Private name: `torch._higher_order_ops.utils.setup_compilation_env`, wherever it is bound. Verified on torch 2.11, 2.13 and
2.14.1. Missing: unavailable.

The context saves settings of Dynamo's and the FX-tracing flag, sets its own (an unlimited recompile limit among them), and
puts the saved ones back. Two of them that interleave leave each other's values behind.
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

_MODULE, _NAME = "torch._higher_order_ops.utils", "setup_compilation_env"


class _Env:
    def __init__(self, inner: Any, passing: Callable[..., None]) -> None:
        self._inner, self._passing = inner, passing

    def __enter__(self) -> Any:
        backend = self._inner.__enter__()
        self._passing("flex_eager.enter", f"recompile_limit {read().recompile_limit}")
        return backend

    def __exit__(self, *error: Any) -> Any:
        self._passing("flex_eager.exit", f"recompile_limit {read().recompile_limit}")
        return self._inner.__exit__(*error)


for _method in (_Env.__init__, _Env.__enter__, _Env.__exit__):
    hide(_method)


class EagerOperators:
    """Reports `flex_eager.enter` once the settings were saved and replaced, `flex_eager.exit` before they come back."""

    name = "eager_operators"

    def __init__(self) -> None:
        self._patches = Patches()
        self._passing: Callable[..., None] = nothing

    def install(self, sink: PassingSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        module: Any = importlib.import_module(_MODULE)
        if not hasattr(module, _NAME):
            return missing(_MODULE, _NAME)
        importlib.import_module("torch.nn.attention.flex_attention")  # it binds the name
        original: Callable[..., Any] = getattr(module, _NAME)

        @functools.wraps(original)
        def setup_compilation_env() -> _Env:
            return _Env(original(), self._passing)

        self._passing = quiet(sink.passing)
        hide(setup_compilation_env)
        for owner, name in bindings(original):
            self._patches.set(owner, name, setup_compilation_env)
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._passing = nothing
