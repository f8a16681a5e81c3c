"""Who sees whom in a DFlash training item.

Keys and values are [context S | block 0 | … | block N-1], queries [block 0 | … | block N-1], each block of B
tokens. A query of block n sees the context *before* its anchor and its own block, both ways; nothing if the
block is not kept. With packed documents it sees only context of its anchor's document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from harness.pipeline.attention import compiled

Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class MaskBuilder(Protocol):
    """Builds the `BlockMask` of a predicate for [batch, any head, queries, keys]."""

    def __call__(
        self, predicate: Predicate, batch: int, queries: int, keys: int, device: torch.device
    ) -> BlockMask: ...


def build_block_mask(predicate: Predicate, batch: int, queries: int, keys: int, device: torch.device) -> BlockMask:
    """`create_block_mask`, eagerly: evaluates all batch × queries × keys entries at once."""
    return create_block_mask(predicate, batch, None, queries, keys, device=device)


def make_mask_builder(
    *,
    compile: bool,
    backend: str = "inductor",
    dynamic: bool | None = None,
    own_code: bool = False,
) -> MaskBuilder:
    """The eager builder, or that compiled (which fuses the evaluation and never holds the dense mask)."""
    if not compile:
        return build_block_mask
    return compiled(build_block_mask, backend=backend, dynamic=dynamic, own_code=own_code)


def dflash_predicate(
    anchors: Tensor,
    keep: Tensor,
    context_length: int,
    block_size: int,
    document_ids: Tensor | None = None,
) -> Predicate:
    """The mask as a function of (batch, head, query, key) indices, which may be tensors that broadcast.

    anchors, keep  [Bt, N]; keep is non-zero for blocks in use
    document_ids   [Bt, S], the document of each context position; None for one document a sequence

    Mask builders and kernels evaluate in tiles of 128, past the last query and the last key, so every index
    into a tensor is clamped.
    """
    if context_length < 1:
        raise ValueError(f"a training item has at least one context token, not {context_length}")
    last_block = anchors.shape[1] - 1
    last_token = context_length - 1
    kept = keep.bool()

    def predicate(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        n = (q // block_size).clamp(max=last_block)
        anchor = anchors[b, n]
        context = kv < anchor
        if document_ids is not None:
            document = document_ids[b, anchor.clamp(max=last_token)]
            context = torch.where(context, document_ids[b, kv.clamp(max=last_token)] == document, False)
        own_block = (kv - context_length) // block_size == n
        # Choices, where the formula has "and" and "or": those make inductor's CPU code one that C++ refuses.
        return torch.where(kept[b, n], torch.where(kv < context_length, context, own_block), False)

    return predicate


def dflash_block_mask(
    anchors: Tensor,
    keep: Tensor,
    context_length: int,
    block_size: int,
    *,
    document_ids: Tensor | None = None,
    build: MaskBuilder = build_block_mask,
) -> BlockMask:
    """The mask for `flex_attention`, [Bt, 1, N·B, S + N·B], on the device of `anchors`.

    Neither length need be a multiple of the tile size of 128.
    """
    batch, blocks = anchors.shape
    predicate = dflash_predicate(anchors, keep, context_length, block_size, document_ids)
    queries = blocks * block_size
    return build(predicate, batch, queries, context_length + queries, anchors.device)


def dflash_dense_mask(
    anchors: Tensor,
    keep: Tensor,
    context_length: int,
    block_size: int,
    *,
    document_ids: Tensor | None = None,
) -> Tensor:
    """The same mask as booleans [Bt, N·B, S + N·B]: for checks, and for attention other than flex."""
    batch, blocks = anchors.shape
    predicate = dflash_predicate(anchors, keep, context_length, block_size, document_ids)
    queries = blocks * block_size
    b = torch.arange(batch, device=anchors.device)[:, None, None]
    q = torch.arange(queries, device=anchors.device)[None, :, None]
    kv = torch.arange(context_length + queries, device=anchors.device)[None, None, :]
    return predicate(b, torch.zeros_like(b), q, kv)
