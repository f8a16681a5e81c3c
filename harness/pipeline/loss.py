"""The DFlash loss: cross-entropy of the drafted slots, early slots weighing more.

Slot k of a block predicts x_{a+k}, weight exp(-(k-1)/γ): a wrong token costs all that follow it, so the first
ones matter most. Logits of all slots at once would be the largest tensor of a step (N·B × vocabulary), so the
anchor axis is cut into chunks. `lm_head` is frozen, so there are two ways to get at a chunk's gradient: to compute
its logits once more in backward, under a checkpoint of its own ("recompute"), or to turn the logits into the
gradient of the hidden states at once and keep only that ("in_forward": one matrix product of three saved).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint

from harness.pipeline.blocks import block_labels

LossGradient = Literal["recompute", "in_forward"]
CPU = torch.device("cpu")


def default_gamma(block_size: int) -> float:
    """γ of the public recipes, 4, 5 and 7 for blocks of 8, 10 and 16; straight lines between and beyond."""
    if block_size <= 10:
        return block_size / 2
    return 5 + (block_size - 10) / 3


def slot_weights(block_size: int, gamma: float | None = None, device: torch.device = CPU) -> Tensor:
    """Weights [B-1], float64, of slots k = 1 … B-1."""
    if gamma is None:
        gamma = default_gamma(block_size)
    if not gamma > 0:
        raise ValueError(f"gamma must be positive, not {gamma}")
    return torch.exp(-torch.arange(block_size - 1, dtype=torch.float64, device=device) / gamma)


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
    gradient: LossGradient = "recompute",
    keep_rng_state: bool = True,
) -> tuple[Tensor, Tensor]:
    """(Σ w·CE, Σ w), two scalars that add over items; the loss of several is the ratio of the sums.

    hidden         [Bt, N·B, d]  the drafter's output
    lm_head        [V, d]        the target's, frozen
    input_ids, loss_mask  [Bt, S];  anchors, keep  [Bt, N]
    gamma          of the weights; None for the block size's own
    chunk          anchors a chunk; 0 for all at once
    gradient       "recompute": a checkpoint for each chunk (none for all at once); "in_forward": see the module's text
    keep_rng_state of the checkpoints, as torch's `preserve_rng_state`

    Cross-entropy is computed in float32 (float64 if `hidden` is). Σ w is 0 for an item without a valid label.
    """
    labels, valid = block_labels(input_ids, anchors, keep, loss_mask, block_size)
    exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    weights = valid * slot_weights(block_size, gamma, hidden.device).to(exact)
    slots = hidden.view(*anchors.shape, block_size, -1)[:, :, 1:]
    numerator = weights.new_zeros(())
    size = chunk or anchors.shape[1]
    for first in range(0, anchors.shape[1], size):
        part = slice(first, first + size)
        arguments = (slots[:, part], lm_head, labels[:, part], weights[:, part])
        if gradient == "in_forward":
            numerator = numerator + _GradientInForward.apply(*arguments)  # type: ignore[no-untyped-call]
        elif chunk:
            numerator = numerator + checkpoint(
                _weighted_cross_entropy, *arguments, use_reentrant=False, preserve_rng_state=keep_rng_state
            )
        else:
            numerator = numerator + _weighted_cross_entropy(*arguments)
    return numerator, weights.sum()


def _weighted_cross_entropy(slots: Tensor, lm_head: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    # As rows of one matrix: a product with slices of blocks would become many products of a few rows each.
    logits = linear(slots.reshape(-1, slots.shape[-1]), lm_head).to(weights.dtype)
    losses = cross_entropy(logits, labels.flatten(), reduction="none")
    return (losses * weights.flatten()).sum()


class _GradientInForward(torch.autograd.Function):
    """As `_weighted_cross_entropy`, with the gradient of `slots` made while the logits are there.

    d(w·CE)/d logits = w·(softmax - onehot). The weights are applied after the product with `lm_head`, to rows of size d
    and not of size V.
    """

    @staticmethod
    def forward(ctx: Any, slots: Tensor, lm_head: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        rows, targets = slots.reshape(-1, slots.shape[-1]), labels.reshape(-1, 1)
        scale = weights.reshape(-1, 1)
        logits = linear(rows, lm_head)
        log_p = logits.log_softmax(-1, dtype=weights.dtype)
        of_target = log_p.gather(-1, targets)
        if ctx.needs_input_grad[0]:
            difference = torch.exp(log_p, out=logits)  # rounded once, into memory that is free by now
            difference.scatter_(-1, targets, torch.expm1(of_target).to(rows.dtype))
            per_row = (difference @ lm_head) * scale.to(rows.dtype)
            ctx.save_for_backward(per_row.view(slots.shape))
        return -(of_target * scale).sum()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (per_row,) = ctx.saved_tensors
        return per_row * upstream[0].to(per_row.dtype), None, None, None
