"""The blocks a drafter fills: their input ids, positions and labels, from anchors.

Block n of a sequence starts at its anchor a_n, whose token is known; slots k = 1 … B-1 are to be drafted.
Anchors are [Bt, N] indices into the context of length S. Slots past the end of the context are kept, so that
shapes do not depend on the data; the loss gives them no weight.
"""

from __future__ import annotations

import torch
from torch import Tensor


def block_input_ids(input_ids: Tensor, anchors: Tensor, block_size: int, mask_token_id: int) -> Tensor:
    """Ids [Bt, N·B]: each block is the token at its anchor, then B - 1 MASK tokens."""
    known = input_ids.gather(1, _inside(anchors, input_ids.shape[1]))
    blocks = known.new_full((*anchors.shape, block_size), mask_token_id)
    blocks[:, :, 0] = known
    return blocks.flatten(1)


def block_positions(context: Tensor, anchors: Tensor, block_size: int) -> Tensor:
    """Position ids [Bt, S + N·B] of a training item: the context's own, then p(a_n) + k for each block.

    `context` [Bt, S] holds 0 … S-1, or restarts at every packed document.
    """
    start = context.gather(1, _inside(anchors, context.shape[1]))
    blocks = start[:, :, None] + torch.arange(block_size, device=anchors.device)
    return torch.cat([context, blocks.flatten(1)], dim=1)


def block_labels(
    input_ids: Tensor, anchors: Tensor, keep: Tensor, loss_mask: Tensor, block_size: int
) -> tuple[Tensor, Tensor]:
    """Labels x_{a+k} and whether they count, both [Bt, N, B-1], for slots k = 1 … B-1.

    A label counts when its block is kept, it lies in the context and `loss_mask` [Bt, S] supervises it.
    """
    length = input_ids.shape[1]
    slots = anchors[:, :, None] + torch.arange(1, block_size, device=anchors.device)
    index = _inside(slots, length).flatten(1)
    labels = input_ids.gather(1, index).view_as(slots)
    supervised = loss_mask.gather(1, index).view_as(slots).bool()
    return labels, keep.bool()[:, :, None] & (slots < length) & supervised


def _inside(index: Tensor, length: int) -> Tensor:
    """Indices for `gather`, which must be in range even where the value is not used."""
    return index.long().clamp(0, length - 1)
