"""Speculative decoding gives the target's own text, whatever the drafter says; a good drafter makes it short."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest
import torch
from drafter_support import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3Config, Qwen3ForCausalLM

from harness.pipeline.blocks import block_input_ids, block_positions
from harness.pipeline.config import DFlashConfig
from harness.pipeline.decode import decode_greedily, decode_speculatively, verifier_of
from harness.pipeline.drafter import Drafter
from harness.pipeline.loss import dflash_loss
from harness.pipeline.mask import dflash_block_mask, dflash_dense_mask
from harness.pipeline.target import Target

MASK = 31


@dataclass
class Model:
    """A tiny random Qwen3 and its drafter's configuration."""

    target: Target
    config: DFlashConfig

    @property
    def lm_head(self) -> Tensor:
        return self.target.lm_head.weight


@pytest.fixture(scope="module", params=[torch.float64, torch.float32], ids=["float64", "float32"])
def model(request: pytest.FixtureRequest) -> Model:
    torch.manual_seed(0)
    qwen = Qwen3Config(
        vocab_size=MASK + 1,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        initializer_range=0.6,  # large, so that the text depends on what came before
        tie_word_embeddings=False,
    )
    config = DFlashConfig.from_transformers(
        qwen, mask_token_id=MASK, num_hidden_layers=2, block_size=4, target_layer_ids=(1, 2), dtype=request.param
    )
    return Model(Target(Qwen3ForCausalLM(qwen).to(request.param), config.target_layer_ids), config)


def random_drafter(config: DFlashConfig, seed: int) -> Drafter:
    drafter = Drafter(config)
    drafter.init_weights(torch.Generator().manual_seed(seed))
    return drafter


@pytest.mark.parametrize(("prompt", "new"), [([5], 1), ([5], 30), ([1, 2, 3, 4, 5, 6], 17), ([7, 7], 2)])
def test_token_for_token_the_targets_own_text(model: Model, prompt: list[int], new: int) -> None:
    verify = verifier_of(model.target)
    ids = torch.tensor(prompt)
    expected = decode_greedily(verify, ids, new)
    assert expected[: len(prompt)].tolist() == prompt
    assert len(expected) == len(prompt) + new
    for seed in range(3):
        drafter = random_drafter(model.config, seed)
        decoded = decode_speculatively(drafter, verify, model.target.embedding, model.lm_head, ids, new)
        assert torch.equal(decoded.tokens, expected)
        assert sum(decoded.acceptance_lengths) == new - 1  # the first comes with the prompt's own forward


def test_greedy_text_is_that_of_transformers(model: Model) -> None:
    ids = torch.tensor([3, 1, 4])
    generated = model.target.model.generate(ids[None], max_new_tokens=12, do_sample=False, eos_token_id=None)
    assert torch.equal(decode_greedily(verifier_of(model.target), ids, 12), generated[0])


VOCABULARY, BLOCK, PROMPT = 13, 4, 3


@dataclass
class Oracle:
    """Knows the text, and drafts a wrong token at the given positions of it. Hidden states are one-hot."""

    text: list[int]
    wrong: set[int]
    config: DFlashConfig = field(default_factory=lambda: tiny(vocab_size=VOCABULARY, mask_token_id=12))

    def __call__(self, noise: Tensor, context: Tensor, positions: Tensor) -> Tensor:
        assert context.shape[1] + BLOCK == positions.shape[1]
        said = []
        for position in positions[0, -BLOCK:].tolist():
            right = self.text[min(position, len(self.text) - 1)]
            said.append((right + 1) % VOCABULARY if position in self.wrong else right)
        return torch.nn.functional.one_hot(torch.tensor([said]), VOCABULARY).double()


@dataclass
class Reciter:
    """A target that says one text whatever it is shown: drafts after a wrong one may be what it would say."""

    text: list[int]
    calls: int = 0

    def __call__(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        length = input_ids.shape[1]
        said = torch.tensor([self.text[1 : length + 1]])
        return torch.nn.functional.one_hot(said, VOCABULARY), torch.zeros(1, length, 1)


def lengths_by_hand(wrong: set[int], start: int, new: int) -> list[int]:
    """Tokens of each verification: right drafts up to the first wrong one, and one more, as far as there is room."""
    lengths, done = [], 1
    while done < new:
        drafts = range(start + done, start + done + BLOCK - 1)
        right = next((i for i, position in enumerate(drafts) if position in wrong), BLOCK - 1)
        lengths.append(min(right + 1, new - done))
        done += lengths[-1]
    return lengths


@settings(deadline=None, max_examples=60)
@given(
    text=st.lists(st.integers(1, 11), min_size=40, max_size=40),
    wrong=st.sets(st.integers(0, 39)),
    new=st.integers(0, 20),
)
def test_the_longest_right_prefix_is_accepted(text: list[int], wrong: set[int], new: int) -> None:
    verify = Reciter(text)
    oracle = cast(Drafter, Oracle(text, wrong))
    head = torch.eye(VOCABULARY, dtype=torch.float64)
    decoded = decode_speculatively(oracle, verify, lambda ids: ids, head, torch.tensor(text[:PROMPT]), new)
    assert decoded.tokens.tolist() == text[: PROMPT + new]
    assert list(decoded.acceptance_lengths) == lengths_by_hand(wrong, PROMPT, new)
    assert verify.calls == (1 + len(decoded.acceptance_lengths) if new else 0)


@pytest.mark.parametrize("stop", range(PROMPT, PROMPT + 9))
def test_the_text_ends_with_the_first_stop_token(stop: int) -> None:
    text = [1] * 40
    text[stop] = 9
    prompt, head = torch.tensor(text[:PROMPT]), torch.eye(VOCABULARY, dtype=torch.float64)
    oracle = cast(Drafter, Oracle(text, set()))
    decoded = decode_speculatively(oracle, Reciter(text), lambda ids: ids, head, prompt, 20, stop_ids={9})
    assert decoded.tokens.tolist() == text[: stop + 1]
    assert sum(decoded.acceptance_lengths) == stop - PROMPT
    assert torch.equal(decoded.tokens, decode_greedily(Reciter(text), prompt, 20, stop_ids={9}))


def test_the_mean_acceptance_length() -> None:
    text = [1] * 40
    prompt, head = torch.tensor(text[:PROMPT]), torch.eye(VOCABULARY, dtype=torch.float64)
    oracle = cast(Drafter, Oracle(text, set()))
    decoded = decode_speculatively(oracle, Reciter(text), lambda ids: ids, head, prompt, 9)
    assert decoded.acceptance_lengths == (4, 4)
    assert decoded.mean_acceptance_length == 4.0
    nothing = decode_speculatively(oracle, Reciter(text), lambda ids: ids, head, prompt, 0)
    assert nothing.mean_acceptance_length == 0.0


@pytest.mark.parametrize("prompt", [torch.tensor([], dtype=torch.int64), torch.tensor([[1, 2]])])
def test_a_prompt_is_one_row_of_tokens(prompt: Tensor) -> None:
    with pytest.raises(ValueError, match="a prompt is one row"):
        decode_greedily(Reciter([1, 1]), prompt, 1)


@pytest.mark.parametrize("model", [torch.float32], indirect=True, ids=["float32"])
def test_a_drafter_trained_on_a_text_drafts_that_text(model: Model) -> None:
    """Training and decoding agree on positions, context and labels: one off anywhere, and little is accepted."""
    verify, config = verifier_of(model.target), model.config
    text = decode_greedily(verify, torch.tensor([5, 3]), 30)
    features = verify(text[None])[1].detach()
    anchors = torch.arange(1, len(text) - 1)[None]
    keep = torch.ones_like(anchors)
    noise = model.target.embedding(block_input_ids(text[None], anchors, config.block_size, MASK))
    positions = block_positions(torch.arange(len(text))[None], anchors, config.block_size)
    mask = dflash_block_mask(anchors, keep, len(text), config.block_size)
    dense = dflash_dense_mask(anchors, keep, len(text), config.block_size)

    def attention(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None) -> Tensor:
        seen = None if block_mask is None else dense[:, None]
        return scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)

    drafter = Drafter(config, attention=attention)
    drafter.init_weights(torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=0.04)
    for _ in range(60):
        hidden = drafter(noise, features, positions, mask)
        numerator, denominator = dflash_loss(
            hidden, model.lm_head, text[None], anchors, keep, torch.ones_like(text[None]), config.block_size
        )
        optimizer.zero_grad()
        (numerator / denominator).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    decoded = decode_speculatively(drafter, verify, model.target.embedding, model.lm_head, text[:2], 30)
    assert torch.equal(decoded.tokens, text)
    assert decoded.mean_acceptance_length > 3
