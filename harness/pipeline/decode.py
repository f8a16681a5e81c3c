"""Block-wise speculative decoding with a DFlash drafter: the target's own greedy text, in fewer target calls.

The target verifies B tokens at a time: the last token known to be right and the B-1 that the drafter put after
it. The longest prefix of drafts that the target would have chosen itself is kept, and the target's choice after
that prefix is one more token. Every token is thus the target's argmax after the tokens before it.

This is the plain algorithm: no key/value cache, batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from harness.pipeline.drafter import Drafter
from harness.pipeline.target import Target


class Verifier(Protocol):
    """A causal target model: what it predicts after each token, and what the drafter is fed with."""

    def __call__(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids [1, T] → logits [1, T, V] and features [1, T, K·d] (concatenated tapped layers)."""
        ...


@dataclass(frozen=True)
class Decoded:
    """A text and how it came about."""

    tokens: Tensor  # [prompt + new]
    acceptance_lengths: tuple[int, ...]  # new tokens of each verification, 1 … B

    @property
    def mean_acceptance_length(self) -> float:
        """New tokens per verification; 0 when there was none."""
        lengths = self.acceptance_lengths
        return sum(lengths) / len(lengths) if lengths else 0.0


def verifier_of(target: Target) -> Verifier:
    """The pipeline's target as a verifier."""

    def verify(input_ids: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        features, hidden = target(input_ids, positions, torch.zeros_like(input_ids))
        logits: Tensor = target.lm_head(hidden)
        return logits, features

    return verify


@torch.no_grad()
def decode_greedily(verify: Verifier, prompt: Tensor, max_new_tokens: int, *, stop_ids: Collection[int] = ()) -> Tensor:
    """The target alone, a token at a time: [prompt + new], at most `max_new_tokens`, up to a stop token."""
    tokens = _checked(prompt)
    for _ in range(max_new_tokens):
        logits, _ = verify(tokens[None])
        tokens = torch.cat([tokens, logits[0, -1:].argmax(-1)])
        if int(tokens[-1]) in stop_ids:
            break
    return tokens


@torch.no_grad()
def decode_speculatively(
    drafter: Drafter,
    verify: Verifier,
    embed: Callable[[Tensor], Tensor],
    lm_head: Tensor,
    prompt: Tensor,
    max_new_tokens: int,
    *,
    stop_ids: Collection[int] = (),
) -> Decoded:
    """The same tokens as `decode_greedily`, with drafts.

    embed, lm_head  the target's embedding, ids [1, T] → [1, T, d], and output matrix [V, d]
    prompt          [T], at least one token
    """
    tokens = _checked(prompt)
    end = len(tokens) + max_new_tokens
    lengths: list[int] = []
    if max_new_tokens < 1:
        return Decoded(tokens, ())
    logits, features = verify(tokens[None])
    tokens = torch.cat([tokens, logits[0, -1:].argmax(-1)])
    while len(tokens) < end and int(tokens[-1]) not in stop_ids:
        anchor = len(tokens) - 1  # its token is known, its features are not: the context ends before it
        drafts = _draft(drafter, embed, lm_head, tokens[anchor:], features[:, :anchor])
        logits, features = verify(torch.cat([tokens, drafts])[None])
        choices = logits[0, anchor:].argmax(-1)  # of the target, after the anchor and after each draft
        accepted = int((drafts == choices[:-1]).cumprod(0).sum())
        new = _cut(choices[: accepted + 1], end - len(tokens), stop_ids)
        tokens = torch.cat([tokens, new])
        lengths.append(len(new))
    return Decoded(tokens, tuple(lengths))


def _draft(
    drafter: Drafter, embed: Callable[[Tensor], Tensor], lm_head: Tensor, known: Tensor, context: Tensor
) -> Tensor:
    """B - 1 tokens [B-1] that the drafter puts after `known` [1]; `context` [1, S, K·d] is all before it."""
    config = drafter.config
    block = torch.cat([known, known.new_full((config.block_size - 1,), config.mask_token_id)])
    positions = torch.arange(context.shape[1] + len(block), device=known.device)
    hidden = drafter(embed(block[None]), context, positions[None])
    return linear(hidden[0, 1:], lm_head).argmax(-1)


def _cut(new: Tensor, room: int, stop_ids: Collection[int]) -> Tensor:
    """New tokens as far as there is room, and up to the first stop token."""
    new = new[:room]
    stops = [i for i, token in enumerate(new.tolist()) if token in stop_ids]
    return new[: stops[0] + 1] if stops else new


def _checked(prompt: Tensor) -> Tensor:
    if prompt.ndim != 1 or not len(prompt):
        raise ValueError(f"a prompt is one row of at least one token id, not a tensor of shape {tuple(prompt.shape)}")
    return prompt
