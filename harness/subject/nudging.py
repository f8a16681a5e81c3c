"""Initial weights that differ by one rounding each: what a run that computes the same in another order starts from, at most.

On a GPU two honest runs round differently: kernels that add in whatever order, and libraries that choose other kernels while
several streams are at work (cuBLAS, "Results Reproducibility" in its documentation). A serial reference has one stream and
chooses the same each time, so its runs may agree to the bit and yet say nothing of how far training amplifies a rounding.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_WITHIN_ONE_UNIT = 0.6
"""Times eps, of a weight: more than half a unit in the last place and less than one and a half, whatever its mantissa."""


def nudge(parameters: Iterable[Tensor], seed: int, moved: dict[int, Tensor] | None = None) -> None:
    """Move each element to the next number of its dtype, up or down as `seed` says; zeros stay, and subnormal numbers may.

    In place, without gradients; the same on every device of one kind, whatever torch's default dtype. `moved` has what was
    moved before, by identity: a weight that comes again, as one that two drafters share does, stays as it is by then.
    """
    moved = {} if moved is None else moved
    generators: dict[torch.device, torch.Generator] = {}
    with torch.no_grad():
        for parameter in filter(Tensor.is_floating_point, parameters):
            device = parameter.device
            if device not in generators:
                generators[device] = torch.Generator(device).manual_seed(seed)
            # Drawn for one that was moved before, too: else what comes after it would move otherwise than in another drafter.
            drawn = torch.rand(parameter.shape, device=device, generator=generators[device], dtype=torch.float32)
            if id(parameter) in moved:
                continue
            moved[id(parameter)] = parameter
            step = _WITHIN_ONE_UNIT * torch.finfo(parameter.dtype).eps
            # No wider than it takes: the largest of a billion weights are copied three times.
            exact = parameter.to(torch.float64 if parameter.element_size() > 2 else torch.float32)
            parameter.copy_(exact + exact * torch.where(drawn < 0.5, exact.new_tensor(step), exact.new_tensor(-step)))
