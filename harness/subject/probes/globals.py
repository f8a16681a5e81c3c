"""Process-wide state of torch, before the workers start and after they have ended.

A trial that leaves another default dtype, a set FX-tracing flag or a patched `nn.Module.__call__` has leaked state from
one thread into all, even if no step failed. Random generators are not compared: drawing from them is no leak.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.torch_internals import dynamo_config, fx_trace

from .base import Quiet, Scope


class GlobalsProbe(Quiet):
    """Two snapshots and their difference."""

    name = "globals"

    def __init__(self, scope: Scope) -> None:
        del scope
        self._before: dict[str, Any] = {}

    def install(self) -> str:
        """Take the first snapshot once the scenario's own settings are in place (`begin`)."""
        return "ok"

    def begin(self) -> None:
        """The workload is built; nothing runs yet."""
        self._before = snapshot()

    def after(self) -> list[tuple[str, str]]:
        """What is not as it was."""
        if not self._before:
            return []
        now = snapshot()
        return [
            ("state_leak", f"{name}: {_difference(was, now[name])}")
            for name, was in self._before.items()
            if now[name] != was
        ]


def snapshot() -> dict[str, Any]:
    """The values, by name, as the calling thread sees them."""
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic warn-only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "cuda tf32 matmul": torch.backends.cuda.matmul.allow_tf32,
        "cuda bf16 reduction": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "grad mode": torch.is_grad_enabled(),
        "FX-tracing flag": fx_trace.flag_value(),
        "nn.Module.__call__": torch.nn.Module.__call__,
        "Dynamo's settings": dynamo_config.read(),
    }


def _difference(was: Any, now: Any) -> str:
    if callable(was):
        return "another function than before: an FX trace patched it and did not undo that"
    return f"{was} before, {now} after"
