"""`config.json` of public DFlash folders ↔ `DFlashConfig`.

Such a file is a Qwen3 configuration (the drafter's layers are Qwen3's) plus `num_target_layers` and a table
`dflash_config` with what is DFlash's own: `block_size`, `mask_token_id`, `target_layer_ids`. Older files keep
`block_size` at the top and leave `target_layer_ids` to the rule; both are read, and both places are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from harness.core.errors import UserError, show
from harness.pipeline.config import DFlashConfig, build_target_layer_ids, dtype_name, rope_theta_of

ARCHITECTURE = "DFlashDraftModel"

# Keys that change what a drafter computes, with the values under which this drafter computes the same.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "attention_sink_bias": (False,),
    "attention_value_scale": (1.0,),
    "use_swa": (False,),
    "use_sliding_window": (False,),
    "is_causal": (False,),
    "input_embedding_scale": (1.0,),
    "output_multiplier": (1.0,),
    "final_logit_softcapping": (0, 0.0),
}


def config_from_public(data: Mapping[str, Any], source: str, **overrides: Any) -> DFlashConfig:
    """The drafter that a parsed `config.json` describes; `overrides` replace fields of it.

    Raises `UserError`, beginning with `source`, for a key that is missing or malformed, and for a variant of
    the architecture that this drafter does not compute (sliding windows, biases, DFlash 2, …).
    """
    try:
        return _read(_Keys(data), overrides)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def config_to_public(config: DFlashConfig) -> dict[str, Any]:
    """`config.json` for `config`, readable by transformers 4 and 5 and by the public DFlash code."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "block_size": config.block_size,
        "dflash_config": {
            "block_size": config.block_size,
            "mask_token_id": config.mask_token_id,
            "num_target_layers": config.num_target_layers,
            "target_layer_ids": list(config.target_layer_ids),
        },
        "dtype": dtype_name(config.dtype),
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "layer_types": ["full_attention"] * config.num_hidden_layers,
        "max_position_embeddings": config.max_position_embeddings,
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_key_value_heads,
        "num_target_layers": config.num_target_layers,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"},
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": False,
        "torch_dtype": dtype_name(config.dtype),
        "use_sliding_window": False,
        "vocab_size": config.vocab_size,
    }


class _Keys:
    """Look-ups in `dflash_config` first, then at the top, as the public code does."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        own = data.get("dflash_config") or {}
        if not isinstance(own, Mapping):
            raise UserError(f"dflash_config must be a table, not {show(own)}")
        self.all = {**data, **own}

    def integer(self, key: str) -> int:
        value = self.all.get(key)
        if value is None:
            raise UserError(f"{key} is missing")
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError(f"{key} must be a whole number, not {show(value)}")
        return value

    def layer_ids(self) -> tuple[int, ...]:
        value = self.all.get("target_layer_ids") or []
        if not isinstance(value, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in value):
            raise UserError("target_layer_ids must be a list of whole numbers")
        return tuple(value)

    def number(self, key: str) -> float:
        value = self.all.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"{key} must be a number, not {show(value)}" if key in self.all else f"{key} is missing")
        return float(value)


def _read(keys: _Keys, overrides: dict[str, Any]) -> DFlashConfig:
    _refuse_variants(keys.all)
    values: dict[str, Any] = {
        name: keys.integer(name)
        for name in (
            "hidden_size",
            "intermediate_size",
            "num_attention_heads",
            "num_key_value_heads",
            "num_hidden_layers",
            "max_position_embeddings",
            "vocab_size",
            "block_size",
            "mask_token_id",
        )
        if name not in overrides
    }
    values["head_dim"] = keys.integer("head_dim") if keys.all.get("head_dim") is not None else 0
    values["target_layer_ids"] = keys.layer_ids()
    values["num_target_layers"] = _target_depth(keys)
    values["rms_norm_eps"] = keys.number("rms_norm_eps")
    values["rope_theta"] = rope_theta_of(keys.all)
    values["dtype"] = _dtype(keys.all.get("dtype") or keys.all.get("torch_dtype") or "bfloat16")
    return DFlashConfig(**{**values, **overrides})


def _refuse_variants(keys: Mapping[str, Any]) -> None:
    architectures = keys.get("architectures") or [ARCHITECTURE]
    if ARCHITECTURE not in architectures:
        raise UserError(f"architectures is {architectures}; only {ARCHITECTURE} can be loaded")
    if "sliding_attention" in (keys.get("layer_types") or ()):
        raise UserError("layer_types has sliding_attention layers; only full_attention is supported")
    for key, neutral in _NEUTRAL.items():
        if keys.get(key) is not None and keys[key] not in neutral:
            raise UserError(f"{key} is {show(keys[key])}, which changes what a drafter computes and is not supported")
    for key, base in (("v_head_dim", "head_dim"), ("draft_vocab_size", "vocab_size")):
        if keys.get(key) is not None and keys[key] != keys.get(base):
            raise UserError(f"{key} differs from {base}, which is not supported")


def _target_depth(keys: _Keys) -> int:
    """`num_target_layers`; where it is left out, the depth for which the public rule gives these taps."""
    ids = keys.layer_ids()
    if keys.all.get("num_target_layers") is None and len(ids) > 1:
        depth = ids[-1] + 3
        if build_target_layer_ids(depth, len(ids)) == ids:
            return depth
    return keys.integer("num_target_layers")


def _dtype(name: object) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise UserError(f"dtype must name a torch type such as bfloat16, not {show(name)}")
    return dtype
