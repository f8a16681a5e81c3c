"""Where the blocks of a training item begin."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_anchors(
    loss_mask: Tensor, document_ids: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`count` anchors a sequence: (positions [Bt, N] int64, keep [Bt, N] bool), on the CPU.

    Drawn without replacement and sorted, from the supervised positions whose next token is supervised and of
    the same document: a block that begins elsewhere has nothing to learn. Where a sequence has fewer such
    positions than `count`, the remaining slots are position 0 with keep false. The generator is the caller's
    own: draws from torch's global one would depend on what other threads draw, and on what they compile.
    """
    rows = loss_mask.shape[0]
    anchors = torch.zeros((rows, count), dtype=torch.int64)
    keep = torch.zeros((rows, count), dtype=torch.bool)
    supervised = loss_mask[:, :-1] & loss_mask[:, 1:] & (document_ids[:, :-1] == document_ids[:, 1:])
    for row in range(rows):
        candidates = supervised[row].nonzero().flatten()
        drawn = candidates[torch.randperm(len(candidates), generator=generator)[:count]].sort().values
        anchors[row, : len(drawn)] = drawn
        keep[row, : len(drawn)] = True
    return anchors, keep


def block_windows(
    ids: Tensor, loss_mask: Tensor, document_ids: Tensor, anchors: Tensor, block_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A window of the sequence for each block: (ids [Bt, N·B], loss mask [Bt, N·B], its beginning [Bt, N]).

    `dflash_loss` knows one row of tokens and would let a block that begins near the end of its document learn
    to predict the next document's tokens. In these windows, given to it in place of the sequence, a token
    counts for a block only if it is supervised and of the anchor's own document.
    """
    length = ids.shape[1]
    blocks = anchors.shape[1]
    slots = anchors[:, :, None] + torch.arange(block_size, device=anchors.device)
    index = slots.clamp(max=length - 1).flatten(1)

    def at_slots(row: Tensor) -> Tensor:
        return row.gather(1, index)

    own = document_ids.gather(1, anchors).repeat_interleave(block_size, dim=1)
    counts = at_slots(loss_mask) & (slots.flatten(1) < length) & (at_slots(document_ids) == own)
    begin = torch.arange(0, blocks * block_size, block_size, device=anchors.device)
    return at_slots(ids), counts, begin.expand(anchors.shape)
