"""Executions of `flex_attention` outside a compiled graph: it then runs dense, without saying so.

Private name: `_validate_sdpa_input` as bound in the module `torch.nn.attention.flex_attention` (the
function that `flex_attention` calls first). Verified on torch 2.11, 2.12.1, 2.13 and 2.14.1. Missing:
unavailable.

The Python body of `flex_attention` runs on real tensors only when the call is *not* part of a compiled
graph. Dynamo traces the original check, not the wrapper (`_torchdynamo_inline`), so tracing sees what it
always saw; fake tensors, as in other tracers, are not counted.

Install it before attention is compiled first, and leave it installed: Dynamo guards which function the
module's name is bound to, so a change recompiles.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Protocol

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet

_MODULE, _NAME = "torch.nn.attention.flex_attention", "_validate_sdpa_input"


class DenseSink(Protocol):
    def dense_call(self) -> None: ...


class Dense:
    """Calls a `DenseSink` on the thread that runs attention uncompiled (an engine thread in a recompute)."""

    name = "dense"

    def __init__(self) -> None:
        self._patches = Patches()
        self._call: Callable[..., None] = nothing

    def install(self, sink: DenseSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        # By name and not by attribute: a function of the same name can hide the module.
        module = importlib.import_module(_MODULE)
        original = getattr(module, _NAME, None)
        if original is None:
            return missing(_MODULE, _NAME)
        tracing_types = self._tracing_types()

        @functools.wraps(original)
        def _validate_sdpa_input(query: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(query, tracing_types):
                self._call()
            return original(query, *args, **kwargs)

        _validate_sdpa_input._torchdynamo_inline = original  # type: ignore[attr-defined]
        self._call = quiet(sink.dense_call)
        self._patches.set(module, _NAME, hide(_validate_sdpa_input))
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._call = nothing

    @staticmethod
    def _tracing_types() -> tuple[type, ...]:
        fake = importlib.import_module("torch._subclasses.fake_tensor").FakeTensor
        functional = importlib.import_module("torch._subclasses.functional_tensor").FunctionalTensor
        proxy = importlib.import_module("torch.fx.proxy").Proxy
        return (fake, functional, proxy)
