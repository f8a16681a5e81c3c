"""A short name for each scenario of a matrix: what tells it from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.axes import BY_NAME


def short_name(scenario: Mapping[str, Any], varying: Sequence[str], joint: str = " ") -> str:
    """`lock=first_step checkpoint=reentrant`: the first varying axis, and of the others what is not the
    default.
    """
    if not varying:
        return "default"
    first, *others = varying
    shown = [first, *(axis for axis in others if scenario[axis] != BY_NAME[axis].default)]
    return joint.join(f"{axis}={scenario[axis]}" for axis in shown)


def left_out(scenarios: Sequence[Mapping[str, Any]], varying: Sequence[str]) -> str:
    """`checkpoint=none, shapes=fixed`: what `short_name` leaves unsaid in at least one of these scenarios."""
    return ", ".join(
        f"{axis}={BY_NAME[axis].default}"
        for axis in varying[1:]
        if any(scenario[axis] == BY_NAME[axis].default for scenario in scenarios)
    )


def fit(name: str, width: int) -> str:
    """The name in at most `width` columns: what is too much is left out of its middle, for both ends tell names apart."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 3
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"
