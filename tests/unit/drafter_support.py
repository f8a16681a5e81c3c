"""Tiny drafters and items for the tests of the drafter, its mask, loss and attention."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.pipeline.blocks import block_positions
from harness.pipeline.config import DFlashConfig

torch.set_num_threads(1)


def allow_flex_backward_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`flex_attention` refuses gradients on the CPU, though its graph, run as it is, has a right backward."""
    module = sys.modules["torch.nn.attention.flex_attention"]
    monkeypatch.setattr(module, "_validate_device", lambda query, key, value: None)


def tiny(**changes: Any) -> DFlashConfig:
    values: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_hidden_layers": 2,
        "num_target_layers": 8,
        "target_layer_ids": (1, 4, 5),
        "vocab_size": 50,
        "mask_token_id": 49,
        "block_size": 4,
        "rope_theta": 100.0,
        "dtype": torch.float64,
        **changes,
    }
    return DFlashConfig(**values)


@dataclass
class Item:
    """Random inputs of a drafter."""

    noise: Tensor  # [Bt, N·B, d]
    features: Tensor  # [Bt, S, K·d]
    positions: Tensor  # [Bt, S + N·B]
    anchors: Tensor  # [Bt, N]
    keep: Tensor  # [Bt, N]
    length: int  # S


def item(config: DFlashConfig, *, batch: int = 2, length: int = 9, blocks: int = 3, seed: int = 0) -> Item:
    """Anchors as training draws them, the first one at 0; the last block of the last sequence is not kept."""
    g = torch.Generator().manual_seed(seed)
    drawn = [torch.randperm(length - 1, generator=g)[: blocks - 1].sort().values + 1 for _ in range(batch)]
    anchors = torch.stack([torch.cat([torch.zeros(1, dtype=torch.int64), row]) for row in drawn])
    keep = torch.ones(batch, blocks, dtype=torch.bool)
    keep[-1, -1] = False
    queries, d = blocks * config.block_size, config.hidden_size
    return Item(
        noise=torch.randn(batch, queries, d, generator=g, dtype=torch.float64).to(config.dtype),
        features=torch.randn(batch, length, config.num_taps * d, generator=g, dtype=torch.float64).to(config.dtype),
        positions=block_positions(torch.arange(length).expand(batch, -1), anchors, config.block_size),
        anchors=anchors,
        keep=keep,
        length=length,
    )
