"""The catalogue: what is known to go wrong in multi-threaded `torch.compile`, and how to make it happen.

    from harness.hazards import HAZARDS, checkpoint_hooks, find

    find("first-step-hole").remedy

A family of hazards is a module here; a new hazard is an entry of one, and its small program in
`harness.subject.programs`.
"""

from __future__ import annotations

from harness.core.errors import UserError, nearest
from harness.hazards import (
    checkpoint_hooks,
    checkpoints,
    compiles,
    cublas,
    cuda_graphs,
    deadlocks,
    dense,
    fx_flag,
    fx_globals,
    fx_recompute,
    global_state,
    thread_end,
)
from harness.hazards.base import Hazard

FAMILIES: tuple[tuple[Hazard, ...], ...] = (
    fx_flag.HAZARDS,
    fx_recompute.HAZARDS,
    fx_globals.HAZARDS,
    deadlocks.HAZARDS,
    cuda_graphs.HAZARDS,
    cublas.HAZARDS,
    global_state.HAZARDS,
    dense.HAZARDS,
    checkpoints.HAZARDS,
    checkpoint_hooks.HAZARDS,
    compiles.HAZARDS,
    thread_end.HAZARDS,
)

HAZARDS: tuple[Hazard, ...] = tuple(hazard for family in FAMILIES for hazard in family)
"""All of them, in the order of their families."""

_BY_ID = {hazard.id: hazard for hazard in HAZARDS}


def find(name: str) -> Hazard:
    """The hazard of this id. Raises UserError naming the nearest."""
    try:
        return _BY_ID[name]
    except KeyError:
        hint = nearest(name, list(_BY_ID)) or '; "harness hazards" lists them'
        raise UserError(f'no hazard is called "{name}"{hint}') from None
