"""How many parameters the pipeline's models have, by its settings and the folders they name; torch is not needed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.settings import PipelineSettings

BYTE_VOCABULARY = 264
"""Ids of the built-in tokenizer."""

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_LONGEST_HEADER = 100_000_000  # bytes; the format's own limit


@dataclass(frozen=True)
class ModelSizes:
    """Numbers of parameters. `frozen`: of what drafters need of the target, its embedding and its `lm_head`."""

    target: int
    drafter: int
    frozen: int


@dataclass(frozen=True)
class _Qwen3:
    """A target's shape, by the names of its config.json."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_hidden_layers: int
    vocab_size: int

    @property
    def layer(self) -> int:
        """Parameters of one layer; a drafter's has as many."""
        d, D = self.hidden_size, self.head_dim
        attention = 2 * d * D * (self.num_attention_heads + self.num_key_value_heads)
        return attention + 3 * d * self.intermediate_size + 2 * d + 2 * D

    def target(self, tied: bool) -> int:
        """Parameters of the whole model; `tied`: its `lm_head` is its embedding."""
        tables = (1 if tied else 2) * self.vocab_size * self.hidden_size
        return tables + self.num_hidden_layers * self.layer + self.hidden_size

    def drafter(self, layers: int, taps: int) -> int:
        """Parameters of a drafter for this target."""
        d = self.hidden_size
        return layers * self.layer + taps * d * d + 2 * d


def model_sizes(settings: PipelineSettings) -> ModelSizes | None:
    """Sizes, never above the true ones; None where a folder does not tell them (the trial says what is wrong with it).

    A vocabulary that only a tokenizer's folder knows counts as none.
    """
    tied = False
    if settings.target_model:
        config = _json(Path(settings.target_model).expanduser() / "config.json")
        shape = None if config is None else _shape_of(config)
        tied = config is not None and bool(config.get("tie_word_embeddings", True))
    else:
        shape = _random_shape(settings)
    if shape is None:
        return None
    drafter: int | None
    if settings.drafter_model:
        drafter = _stored(Path(settings.drafter_model).expanduser())
    else:
        drafter = shape.drafter(settings.drafter_layers, settings.tapped)
    if drafter is None:
        return None
    return ModelSizes(shape.target(tied), drafter, 2 * shape.vocab_size * shape.hidden_size)


def _random_shape(settings: PipelineSettings) -> _Qwen3:
    built_in = BYTE_VOCABULARY if settings.tokenizer in ("", "bytes") else 0
    return _Qwen3(
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        head_dim=settings.head_dim,
        num_hidden_layers=settings.target_layers,
        vocab_size=settings.vocab_size or built_in,
    )


def _shape_of(config: Mapping[str, Any]) -> _Qwen3 | None:
    values = {name: config.get(name) for name in _Qwen3.__dataclass_fields__}
    whole = {name: value for name, value in values.items() if type(value) is int and value > 0}
    return _Qwen3(**whole) if len(whole) == len(values) else None


def _stored(folder: Path) -> int | None:
    """Numbers in a folder's safetensors, which a drafter needs to the last one; None where they cannot be told."""
    index = _json(folder / _INDEX) if not (folder / _WEIGHTS).is_file() else None
    shards = {_WEIGHTS}
    if index is not None:
        named = index.get("weight_map")
        shards = {str(file) for file in named.values()} if isinstance(named, dict) else set()
    counts = [_in_file(folder / shard) for shard in sorted(shards)]
    return None if not counts or None in counts else sum(count for count in counts if count is not None)


def _in_file(path: Path) -> int | None:
    """A safetensors file begins with the length of its JSON header, eight bytes, and the header."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if length <= _LONGEST_HEADER else {}
            return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__") or None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # the trial reads it whole, and says what is wrong with it


def _json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # as above
    return document if isinstance(document, dict) else None
