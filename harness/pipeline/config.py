"""The shape of a DFlash drafter, and where its numbers come from.

A drafter is cut to its target: it works at the target's hidden size, reads K of the target's L layers and
borrows the target's embedding and `lm_head`. `DFlashConfig.from_transformers` takes those numbers from a
target's configuration; `public_layout` reads and writes them as public DFlash folders keep them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.errors import UserError, nearest

_POSITIVE = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "num_target_layers",
    "vocab_size",
    "max_position_embeddings",
)


@dataclass(frozen=True)
class DFlashConfig:
    """One drafter's architecture. Every field is checked when the value is made.

    Raises `UserError` naming the field that cannot be. `head_dim = 0` stands for
    `hidden_size / num_attention_heads`, `target_layer_ids = ()` for the public rule
    (`build_target_layer_ids`) with one tap for each drafter layer.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    num_target_layers: int
    vocab_size: int
    mask_token_id: int
    head_dim: int = 0
    num_hidden_layers: int = 5
    target_layer_ids: tuple[int, ...] = ()
    block_size: int = 16
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    max_position_embeddings: int = 40960
    dtype: torch.dtype = torch.bfloat16

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.head_dim:
            object.__setattr__(self, "head_dim", self._derived_head_dim())
        if not self.target_layer_ids:
            ids = build_target_layer_ids(self.num_target_layers, self.num_hidden_layers)
            object.__setattr__(self, "target_layer_ids", ids)
        object.__setattr__(self, "target_layer_ids", tuple(self.target_layer_ids))
        self._check_attention()
        self._check_tokens()
        for layer in self.target_layer_ids:
            if not 0 <= layer < self.num_target_layers:
                raise UserError(
                    f"target_layer_ids names layer {layer}, but a target of {self.num_target_layers} layers "
                    f"has 0 to {self.num_target_layers - 1}"
                )
        for name in ("rms_norm_eps", "rope_theta"):
            number = getattr(self, name)
            if not (math.isfinite(number) and number > 0):
                raise UserError(f"{name} must be a positive number, not {number}")
        if not self.dtype.is_floating_point:
            raise UserError(f"dtype must be a floating-point type, not {dtype_name(self.dtype)}")

    def _derived_head_dim(self) -> int:
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not divisible by num_attention_heads "
                f"{self.num_attention_heads}; give head_dim, or sizes that divide"
            )
        return self.hidden_size // self.num_attention_heads

    def _check_attention(self) -> None:
        if self.head_dim < 2 or self.head_dim % 2:
            raise UserError(f"head_dim must be even (rotary positions turn pairs), not {self.head_dim}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise UserError(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of num_key_value_heads "
                f"{self.num_key_value_heads}"
            )

    def _check_tokens(self) -> None:
        if self.block_size < 2:
            raise UserError(f"block_size must be at least 2 (one known token, one to draft), not {self.block_size}")
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise UserError(f"mask_token_id {self.mask_token_id} is outside the vocabulary of {self.vocab_size} ids")

    @property
    def num_taps(self) -> int:
        """K, the number of target layers whose outputs are concatenated."""
        return len(self.target_layer_ids)

    @classmethod
    def from_transformers(cls, target: Any, **overrides: Any) -> DFlashConfig:
        """The drafter of a transformers *target* configuration (Qwen2, Qwen3 and their like).

        `num_hidden_layers` of the target becomes `num_target_layers`. `overrides` are fields of this class,
        and must hold what a target does not know: `mask_token_id`; mostly also `block_size`,
        `num_hidden_layers` and `target_layer_ids`. Raises `UserError` for an unknown field, or one that
        nothing gives.
        """
        text = target.get_text_config() if hasattr(target, "get_text_config") else target
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name in overrides:
            if name not in fields:
                raise UserError(f"a drafter's configuration has no field {name!r}{nearest(name, fields)}")
        values: dict[str, Any] = {
            "num_target_layers": text.num_hidden_layers,
            "rope_theta": rope_theta_of(text.to_dict()),
        }
        for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
            values[name] = getattr(text, name)
        for name in ("head_dim", "vocab_size", "rms_norm_eps", "max_position_embeddings"):
            if getattr(text, name, None) is not None:
                values[name] = getattr(text, name)
        if isinstance(getattr(text, "dtype", None), torch.dtype):
            values["dtype"] = text.dtype
        values.update(overrides)
        missing = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in values]
        if missing:
            raise UserError(f"the target's configuration does not say {', '.join(missing)}; give it explicitly")
        return cls(**values)


def build_target_layer_ids(num_target_layers: int, taps: int) -> tuple[int, ...]:
    """The public rule for which target layers feed the drafter (0-based; outputs of those layers).

    One tap takes the middle layer; more are spread evenly from layer 1 to layer L - 3, with Python's
    rounding. Raises `UserError` for a target too shallow for the rule.
    """
    if taps < 1:
        raise UserError(f"a drafter needs at least one tapped target layer, not {taps}")
    if taps == 1:
        return (num_target_layers // 2,)
    ids = tuple(round(1 + i * (num_target_layers - 4) / (taps - 1)) for i in range(taps))
    if min(ids) < 0 or max(ids) >= num_target_layers:
        raise UserError(
            f"a target of {num_target_layers} layers is too shallow for {taps} taps by the public rule; "
            "give target_layer_ids"
        )
    return ids


def rope_theta_of(config: dict[str, Any]) -> float:
    """The rotary base in a transformers configuration: `rope_parameters` (5.x) or `rope_theta` (4.x).

    Raises `UserError` for scaled or partial rotary positions, which the drafter does not compute.
    """
    rope = config.get("rope_parameters") or {}
    if "full_attention" in rope:  # 5.x, when layers of several kinds have a base each
        rope = rope["full_attention"]
    for key, table in (("rope_parameters", rope), ("rope_scaling", config.get("rope_scaling") or {})):
        kind = table.get("rope_type", table.get("type", "default"))
        if kind != "default":
            raise UserError(f"{key} asks for rotary positions of type {kind!r}; only 'default' is supported")
    fraction = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if fraction not in (None, 1, 1.0):
        raise UserError(f"partial_rotary_factor is {fraction}; only whole heads (1.0) are supported")
    theta = rope.get("rope_theta", config.get("rope_theta"))
    if theta is None:
        raise UserError("the configuration names no rotary base (rope_parameters.rope_theta or rope_theta)")
    return float(theta)


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.bfloat16` as configurations write it: `bfloat16`."""
    return str(dtype).removeprefix("torch.")
