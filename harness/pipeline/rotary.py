"""Rotary positions, as Qwen's models use them: halves of a head are rotated, not neighbours.

The table is made from the position ids of each call and kept nowhere: a cached table would be state that
threads, devices and checkpoint recomputes share.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_table(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin, each [Bt, 1, T, D], of `positions` [Bt, T], broadcast over heads.

    Angles are computed in float32 (float64 for a float64 model: they would lose what it keeps), then cast.
    """
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    pairs = torch.arange(0, head_dim, 2, device=positions.device, dtype=exact)
    frequencies = theta ** (-pairs / head_dim)
    angles = positions[:, None, :, None].to(exact) * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`heads` [Bt, H, T, D] turned by the last T entries of the table."""
    length = heads.shape[-2]
    first, second = heads.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return heads * cos[..., -length:, :] + turned * sin[..., -length:, :]
