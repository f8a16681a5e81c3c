"""The DFlash loss: cross-entropy of the drafted slots, early slots weighing more.

Slot k of a block predicts x_{a+k}, weight exp(-(k-1)/γ): a wrong token costs all that follow it, so the first
ones matter most. Logits of all slots at once would be the largest tensor of a step (N·B × vocabulary), so the
anchor axis is cut into chunks, each chunk's `lm_head` and cross-entropy under a checkpoint of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint

from harness.pipeline.blocks import block_labels


def default_gamma(block_size: int) -> float:
    """γ of the public recipes, 4, 5 and 7 for blocks of 8, 10 and 16; straight lines between and beyond."""
    if block_size <= 10:
        return block_size / 2
    return 5 + (block_size - 10) / 3


def slot_weights(block_size: int, gamma: float | None = None) -> Tensor:
    """Weights [B-1], float64, of slots k = 1 … B-1."""
    if gamma is None:
        gamma = default_gamma(block_size)
    if not gamma > 0:
        raise ValueError(f"gamma must be positive, not {gamma}")
    return torch.exp(-torch.arange(block_size - 1, dtype=torch.float64) / gamma)


def dflash_loss(
    hidden: Tensor,
    lm_head: Tensor,
    input_ids: Tensor,
    anchors: Tensor,
    keep: Tensor,
    loss_mask: Tensor,
    block_size: int,
    *,
    gamma: float | None = None,
    chunk: int = 0,
) -> tuple[Tensor, Tensor]:
    """(Σ w·CE, Σ w), two scalars that add over items; the loss of several is the ratio of the sums.

    hidden         [Bt, N·B, d]  the drafter's output
    lm_head        [V, d]        the target's, frozen
    input_ids, loss_mask  [Bt, S];  anchors, keep  [Bt, N]
    gamma          of the weights; None for the block size's own
    chunk          anchors a chunk; 0 for all at once, without a checkpoint

    Cross-entropy is computed in float32 (float64 if `hidden` is). Σ w is 0 for an item without a valid label.
    """
    labels, valid = block_labels(input_ids, anchors, keep, loss_mask, block_size)
    exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    weights = valid * slot_weights(block_size, gamma).to(hidden.device, exact)
    slots = hidden.view(*anchors.shape, block_size, -1)[:, :, 1:]
    if not chunk:
        return _weighted_cross_entropy(slots, lm_head, labels, weights), weights.sum()
    numerator = weights.new_zeros(())
    for first in range(0, anchors.shape[1], chunk):
        part = slice(first, first + chunk)
        numerator = numerator + checkpoint(
            _weighted_cross_entropy,
            slots[:, part],
            lm_head,
            labels[:, part],
            weights[:, part],
            use_reentrant=False,
        )
    return numerator, weights.sum()


def _weighted_cross_entropy(slots: Tensor, lm_head: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    logits = linear(slots, lm_head).to(weights.dtype)
    losses = cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return (losses * weights.flatten()).sum()
