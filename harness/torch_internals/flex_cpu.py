"""Lets `flex_attention` run forward and backward on the CPU, where torch refuses gradients, and on `hosted_device`.

Private name: `torch.nn.attention.flex_attention._validate_device`. Verified on torch 2.11, 2.12.1, 2.13 and
2.14.1 with the backends `eager` and `aot_eager`, whose attention is plain tensor code that differentiates
anywhere; inductor has no CPU kernel for the backward, and still fails. Missing: unavailable.

Install it before attention is compiled first, and leave it installed: Dynamo guards which function the
module's name is bound to, so a change recompiles.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.torch_internals.base import AVAILABLE, Availability, Patches, missing

_MODULE, _NAME = "torch.nn.attention.flex_attention", "_validate_device"


class FlexCpu:
    """No sink: it changes one check and reports nothing. Other devices are checked as before."""

    name = "flex_cpu"

    def __init__(self) -> None:
        self._patches = Patches()

    def install(self, sink: object = None) -> Availability:
        self._patches.refuse_second_install(self.name)
        module = importlib.import_module(_MODULE)
        original = getattr(module, _NAME, None)
        if original is None:
            return missing(_MODULE, _NAME)

        # Dynamo traces this function as it traces the original: no hook, no closure but `original`.
        @functools.wraps(original)
        def _validate_device(query: Any, key: Any, value: Any) -> None:
            if query.device.type not in ("cpu", "hosted"):
                original(query, key, value)

        self._patches.set(module, _NAME, _validate_device)
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()


@contextmanager
def flex_on_cpu() -> Iterator[Availability]:
    """`FlexCpu` for the length of a `with` block."""
    adapter = FlexCpu()
    availability = adapter.install()
    try:
        yield availability
    finally:
        adapter.uninstall()
