"""The learning rate over a run: linear warm-up, then half a cosine down to nothing."""

from __future__ import annotations

import math


def warmup_steps(total: int, ratio: float) -> int:
    """Steps of warm-up in a run of `total` steps; at least one when `ratio` is positive, never more than `total`."""
    if ratio <= 0.0:
        return 0
    return min(total, math.ceil(total * ratio))


def cosine_with_warmup(step: int, *, total: int, warmup: int) -> float:
    """Factor in (0, 1] on the base learning rate at `step` (0 is the first step).

    The first `warmup` steps climb linearly to 1; the rest follow half a cosine. The factor never reaches 0
    inside the run, so that no step is taken for nothing; past `total` it is 0.
    """
    if step < 0 or total < 1 or not 0 <= warmup <= total:
        raise ValueError(f"no such schedule: step {step}, total {total}, warm-up {warmup}")
    if step >= total:
        return 0.0
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / (total - warmup)))
