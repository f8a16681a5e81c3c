"""The drafter's shape: the rule for tapped layers, sizes of the published drafters, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from drafter_support import tiny
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2Config, Qwen3Config

from harness.core.errors import UserError
from harness.pipeline.config import DFlashConfig, build_target_layer_ids, rope_theta_of
from harness.pipeline.drafter import Drafter


@pytest.mark.parametrize(
    ("layers", "taps", "ids"),
    [
        (36, 5, (1, 9, 17, 25, 33)),
        (24, 5, (1, 6, 11, 16, 21)),
        (64, 5, (1, 16, 31, 46, 61)),
        (48, 8, (1, 7, 14, 20, 26, 32, 39, 45)),
        (36, 1, (18,)),
        (7, 1, (3,)),
        (1, 1, (0,)),
        (4, 2, (1, 1)),
    ],
)
def test_tapped_layers(layers: int, taps: int, ids: tuple[int, ...]) -> None:
    assert build_target_layer_ids(layers, taps) == ids


@given(st.integers(4, 200), st.integers(2, 40))
def test_taps_run_from_layer_1_to_the_third_last_and_never_back(layers: int, taps: int) -> None:
    ids = build_target_layer_ids(layers, taps)
    assert len(ids) == taps
    assert ids[0] == 1
    assert ids[-1] == layers - 3
    assert list(ids) == sorted(ids)


def test_half_way_between_two_layers_is_rounded_as_python_does() -> None:
    assert build_target_layer_ids(7, 3) == (1, 2, 4)  # 2.5 → 2, to even


@pytest.mark.parametrize(("layers", "taps"), [(2, 2), (1, 2), (5, 0)])
def test_targets_that_the_rule_does_not_fit(layers: int, taps: int) -> None:
    with pytest.raises(UserError):
        build_target_layer_ids(layers, taps)


def qwen3_8b(**changes: Any) -> Qwen3Config:
    return Qwen3Config(
        hidden_size=4096,
        intermediate_size=12288,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        num_hidden_layers=36,
        vocab_size=151936,
        max_position_embeddings=40960,
        **changes,
    )


def qwen25_half_b() -> Qwen2Config:
    return Qwen2Config(
        hidden_size=896,
        intermediate_size=4864,
        num_attention_heads=14,
        num_key_value_heads=2,
        num_hidden_layers=24,
        vocab_size=151936,
    )


@pytest.mark.parametrize(
    ("target", "count"), [(qwen3_8b(), 1_048_626_432), (qwen25_half_b(), 78_572_672)], ids=["8B", "0.5B"]
)
def test_published_parameter_counts(target: Any, count: int) -> None:
    config = DFlashConfig.from_transformers(target, mask_token_id=151669)
    with torch.device("meta"):
        drafter = Drafter(config)
    assert sum(p.numel() for p in drafter.parameters() if p.requires_grad) == count


def test_numbers_come_from_the_target_and_overrides_win() -> None:
    target = qwen3_8b(rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    config = DFlashConfig.from_transformers(
        target, mask_token_id=7, num_hidden_layers=3, block_size=8, target_layer_ids=(1, 9), dtype=torch.float32
    )
    assert config == DFlashConfig(
        hidden_size=4096,
        intermediate_size=12288,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_target_layers=36,
        vocab_size=151936,
        mask_token_id=7,
        head_dim=128,
        num_hidden_layers=3,
        target_layer_ids=(1, 9),
        block_size=8,
        rms_norm_eps=1e-5,
        rope_theta=1e6,
        max_position_embeddings=40960,
        dtype=torch.float32,
    )
    assert config.num_taps == 2


def test_a_target_without_head_dim_divides_its_hidden_size() -> None:
    assert DFlashConfig.from_transformers(qwen25_half_b(), mask_token_id=0).head_dim == 64


def test_the_text_part_of_a_target_of_several_modalities_counts() -> None:
    target = SimpleNamespace(get_text_config=lambda: qwen3_8b())
    assert DFlashConfig.from_transformers(target, mask_token_id=0).hidden_size == 4096


def test_a_misspelled_override_is_named_with_its_neighbour() -> None:
    with pytest.raises(UserError, match=r"'blok_size'.*block_size"):
        DFlashConfig.from_transformers(qwen3_8b(), mask_token_id=0, blok_size=4)


def test_what_the_target_does_not_know_must_be_given() -> None:
    with pytest.raises(UserError, match="mask_token_id"):
        DFlashConfig.from_transformers(qwen3_8b())


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 5e5},  # transformers 4
        {"rope_theta": 5e5, "rope_scaling": None},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},  # transformers 5
        {"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 1.0},
        {"rope_parameters": {"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e4}}},
    ],
)
def test_the_rotary_base_where_each_transformers_keeps_it(config: dict[str, Any]) -> None:
    assert rope_theta_of(config) == 5e5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no rotary base"),
        ({"rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling.*'yarn'"),
        ({"rope_theta": 1e4, "rope_scaling": {"type": "linear"}}, "'linear'"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "llama3"}}, "rope_parameters.*'llama3'"),
        ({"rope_theta": 1e4, "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ],
)
def test_rotary_positions_that_the_drafter_does_not_compute(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rope_theta_of(config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 0, "hidden_size": 18}, "hidden_size 18 is not divisible by num_attention_heads 4"),
        ({"head_dim": 7}, "head_dim must be even"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
        ({"vocab_size": -1}, "vocab_size must be at least 1"),
        ({"block_size": 1}, "block_size must be at least 2"),
        ({"mask_token_id": 50}, "mask_token_id 50 is outside the vocabulary of 50"),
        ({"mask_token_id": -1}, "mask_token_id -1"),
        ({"target_layer_ids": (1, 8)}, "names layer 8, but a target of 8 layers has 0 to 7"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"dtype": torch.int64}, "dtype must be a floating-point type, not int64"),
    ],
)
def test_impossible_shapes_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tiny(**changes)


def test_defaults_are_derived() -> None:
    config = tiny(head_dim=0, target_layer_ids=(), num_hidden_layers=2)
    assert config.head_dim == 4
    assert config.target_layer_ids == (1, 5)
