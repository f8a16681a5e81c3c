"""Losses as a trial's files hold them: JSON has no word for what is no finite number, and that must not be lost.

A step whose loss is `nan` trained on nothing, and is no step that raised: only the latter is null.
"""

from __future__ import annotations

import math

WORDS = ("nan", "inf", "-inf")
NOT_FINITE = "not_finite"
"""Key of an event `step.done` for such a word, as its `loss` is a number or null."""


def written(loss: float | None) -> float | str | None:
    """For a file: a finite number as it is, another as its word; None where there is no loss."""
    return loss if loss is None or math.isfinite(loss) else str(loss)


def read(value: object) -> float | None:
    """What `written` gave; None for whatever else may stand there."""
    if isinstance(value, str):
        return float(value) if value in WORDS else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
