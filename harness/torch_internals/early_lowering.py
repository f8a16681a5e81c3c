"""Whether AOTAutograd lowers a backward together with its forward, inside the compile, or lazily at its first use.

Private name: `torch._functorch.config.force_non_lazy_backward_lowering`, on torch 2.11, 2.13 and 2.14.1. Lowered early, a
backward takes no compile lock and traces nothing when it runs: what `compile-lock-engine-deadlock` and
`fx-flag-collision-backward` need is not there. From torch 2.12 on the value holds in the thread that sets it, and it counts
in the thread that compiles.
"""

from __future__ import annotations

import importlib

from .base import AVAILABLE, Availability

NAME = "force_non_lazy_backward_lowering"


def lower_early() -> Availability:
    """Sets it for the calling thread (up to torch 2.11: for all)."""
    config = importlib.import_module("torch._functorch.config")
    if not hasattr(config, NAME):
        return Availability(False, f"torch._functorch.config has no {NAME}")
    setattr(config, NAME, True)
    return AVAILABLE
