"""The loss against a loop over slots; its weights; chunks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.pipeline.loss import LossGradient, default_gamma, dflash_loss, slot_weights

VOCABULARY, HIDDEN = 11, 6


def by_loop(
    hidden: Tensor,
    lm_head: Tensor,
    ids: Tensor,
    anchors: Tensor,
    keep: Tensor,
    loss_mask: Tensor,
    size: int,
    gamma: float,
) -> tuple[Tensor, float]:
    """A slot at a time, with the logarithm of a softmax written out."""
    numerator, denominator = torch.zeros((), dtype=torch.float64), 0.0
    batch, length = ids.shape
    for b in range(batch):
        for n, anchor in enumerate(anchors[b].tolist()):
            for k in range(1, size):
                if not keep[b, n] or anchor + k >= length or not loss_mask[b, anchor + k]:
                    continue
                logits = lm_head @ hidden[b, n * size + k]
                loss = logits.exp().sum().log() - logits[ids[b, anchor + k]]
                weight = math.exp(-(k - 1) / gamma)
                numerator = numerator + weight * loss
                denominator += weight
    return numerator, denominator


def problem(seed: int, *, batch: int = 2, length: int = 9, blocks: int = 5, size: int = 4) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "hidden": torch.randn(batch, blocks * size, HIDDEN, generator=g, dtype=torch.float64).requires_grad_(),
        "lm_head": torch.randn(VOCABULARY, HIDDEN, generator=g, dtype=torch.float64),
        "input_ids": torch.randint(0, VOCABULARY, (batch, length), generator=g),
        "anchors": torch.randint(0, length, (batch, blocks), generator=g),  # blocks past the end among them
        "keep": torch.rand(batch, blocks, generator=g) < 0.7,
        "loss_mask": (torch.rand(batch, length, generator=g) < 0.8).long(),
    }


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(2, 6),
    chunk=st.integers(0, 7),
    gradient=st.sampled_from(["recompute", "in_forward"]),
)
def test_value_and_gradient_against_the_loop(seed: int, size: int, chunk: int, gradient: LossGradient) -> None:
    p = problem(seed, size=size)
    numerator, denominator = dflash_loss(**p, block_size=size, gamma=3.0, chunk=chunk, gradient=gradient)
    expected, weight = by_loop(*p.values(), size=size, gamma=3.0)
    torch.testing.assert_close(numerator, expected)
    assert denominator.item() == pytest.approx(weight)
    (gradient,) = torch.autograd.grad(numerator, p["hidden"])
    if weight:
        (reference,) = torch.autograd.grad(expected, p["hidden"])
        torch.testing.assert_close(gradient, reference)
    else:
        assert (gradient == 0).all()


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 8])
def test_chunks_add_up_to_the_whole(chunk: int) -> None:
    p = problem(1)
    whole, weight = dflash_loss(**p, block_size=4)
    chunked, chunked_weight = dflash_loss(**p, block_size=4, chunk=chunk)
    torch.testing.assert_close(chunked, whole)
    assert torch.equal(chunked_weight, weight)
    (a,), (b,) = torch.autograd.grad(chunked, p["hidden"]), torch.autograd.grad(whole, p["hidden"])
    torch.testing.assert_close(a, b)


def test_logits_of_a_chunk_are_not_kept() -> None:
    """What the backward of a chunked loss keeps does not hold a tensor as large as the chunk's logits."""
    p = problem(2, blocks=6)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.numel()), t)[1], lambda t: t):
        dflash_loss(**p, block_size=4, chunk=2)
        chunked = max(kept)
        kept.clear()
        dflash_loss(**p, block_size=4)
    assert max(kept) >= 2 * 6 * 3 * VOCABULARY  # the logits of all anchors
    assert chunked < 2 * 2 * 3 * VOCABULARY  # of one chunk


@pytest.mark.parametrize(("size", "gamma", "total"), [(16, 7.0, 6.630611), (10, 5.0, 4.604759), (8, 4.0, 3.735212)])
def test_the_weight_of_a_full_block(size: int, gamma: float, total: float) -> None:
    assert default_gamma(size) == gamma
    assert slot_weights(size).sum().item() == pytest.approx(total, abs=5e-7)
    ids = torch.zeros(1, 40, dtype=torch.int64)
    one = torch.ones(1, 1)
    _, weight = dflash_loss(
        torch.zeros(1, size, HIDDEN, dtype=torch.float64),
        torch.zeros(VOCABULARY, HIDDEN, dtype=torch.float64),
        ids,
        torch.tensor([[3]]),
        one,
        torch.ones_like(ids),
        size,
    )
    assert weight.item() == pytest.approx(total, abs=5e-7)


def test_gamma_of_other_block_sizes_lies_between() -> None:
    gammas = [default_gamma(size) for size in range(2, 40)]
    assert gammas == sorted(gammas)
    assert gammas[0] > 0


def test_gamma_must_be_positive() -> None:
    with pytest.raises(ValueError, match="gamma must be positive"):
        slot_weights(4, 0.0)


def test_the_slot_of_the_anchor_itself_has_no_loss() -> None:
    p = problem(3)
    numerator, _ = dflash_loss(**p, block_size=4)
    (gradient,) = torch.autograd.grad(numerator, p["hidden"])
    assert (gradient[:, ::4] == 0).all()


@pytest.mark.parametrize("nothing", ["keep", "loss_mask"])
@pytest.mark.parametrize("chunk", [0, 2])
def test_an_item_without_a_valid_label_weighs_nothing(nothing: str, chunk: int) -> None:
    p = problem(4)
    p[nothing] = torch.zeros_like(p[nothing])
    numerator, denominator = dflash_loss(**p, block_size=4, chunk=chunk)
    assert numerator.item() == denominator.item() == 0
    (gradient,) = torch.autograd.grad(numerator, p["hidden"])
    assert (gradient == 0).all()


def test_an_anchor_on_the_last_token_has_only_slots_past_the_end() -> None:
    p = problem(5, blocks=1)
    p["anchors"] = torch.full((2, 1), 8)
    p["keep"] = torch.ones(2, 1)
    assert dflash_loss(**p, block_size=4)[1] == 0


@pytest.mark.parametrize("chunk", [0, 2])
def test_untrained_cross_entropy_is_the_logarithm_of_the_vocabulary(chunk: int) -> None:
    p = problem(6)
    p["hidden"] = torch.zeros_like(p["hidden"])
    numerator, denominator = dflash_loss(**p, block_size=4, chunk=chunk)
    assert (numerator / denominator).item() == pytest.approx(math.log(VOCABULARY))


def test_low_precision_is_summed_in_float32() -> None:
    p = problem(7)
    p["hidden"], p["lm_head"] = p["hidden"].detach().bfloat16(), p["lm_head"].bfloat16()
    numerator, denominator = dflash_loss(**p, block_size=4)
    assert numerator.dtype == denominator.dtype == torch.float32
