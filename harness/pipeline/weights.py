"""Drafters on disk: folders with `config.json` and safetensors, as public DFlash checkpoints are.

Weights are never unpickled. Names and shapes must fit exactly: a drafter that was loaded in part would train,
and nothing would say so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from harness.core.errors import UserError
from harness.pipeline.config import DFlashConfig
from harness.pipeline.drafter import Drafter
from harness.pipeline.public_layout import config_from_public, config_to_public

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_SHOWN = 4  # names in an error line, of each kind


def load_drafter(folder: str | Path, *, config_overrides: Mapping[str, Any] | None = None, **options: Any) -> Drafter:
    """The drafter in `folder`, on the CPU; `options` are `Drafter`'s. Raises `UserError`."""
    config = load_config(folder, **(config_overrides or {}))
    with torch.device("meta"):
        drafter = Drafter(config, **options)
    drafter.to_empty(device="cpu")
    load_weights(drafter, folder)
    return drafter


def load_config(folder: str | Path, **overrides: Any) -> DFlashConfig:
    """The configuration in `folder`, fields replaced by `overrides`. Raises `UserError`."""
    path = _folder(folder) / CONFIG
    return config_from_public(_read_json(path), str(path), **overrides)


def load_weights(drafter: Drafter, folder: str | Path) -> None:
    """Set all weights of `drafter` from `folder`, cast to the drafter's own dtype. Raises `UserError`."""
    set_weights(drafter, read_weights(folder), str(folder))


def set_weights(drafter: Drafter, weights: Mapping[str, Tensor], source: str) -> None:
    """Set all weights by name; `source` begins the message of the `UserError` when they do not fit."""
    own = drafter.state_dict()
    shapes = [
        f"{name} is {_shape(weights[name])}, not {_shape(own[name])}"
        for name in own
        if name in weights and weights[name].shape != own[name].shape
    ]
    types = [f"{name} is {w.dtype}" for name, w in weights.items() if name in own and not w.is_floating_point()]
    problems = [
        f"{label} {_some(names)}"
        for label, names in (
            ("missing", [name for name in own if name not in weights]),
            ("unexpected", [name for name in weights if name not in own]),
            ("of another shape:", shapes),
            ("not floating-point:", types),
        )
        if names
    ]
    if problems:
        raise UserError(f"{source}: the weights do not fit this drafter: {'; '.join(problems)}")
    drafter.load_state_dict(dict(weights))


def read_weights(folder: str | Path) -> dict[str, Tensor]:
    """All tensors of `model.safetensors`, or of the shards that `model.safetensors.index.json` names.

    Raises `UserError` when there are none, when they are damaged, or when they are only there as pickles.
    """
    path = _folder(folder)
    if (path / WEIGHTS).is_file():
        return _read_tensors(path / WEIGHTS)
    if (path / INDEX).is_file():
        return _read_shards(path / INDEX)
    pickled = sorted(file.name for suffix in ("bin", "pt", "pth") for file in path.glob(f"*.{suffix}"))
    if pickled:
        raise UserError(
            f"{path}: only pickled weights ({pickled[0]}), which can run code when read; convert them: "
            f"safetensors.torch.save_file(torch.load({pickled[0]!r}, weights_only=True), {WEIGHTS!r})"
        )
    raise UserError(f"{path}: no weights there ({WEIGHTS} or {INDEX} is expected)")


def save_drafter(drafter: Drafter, folder: str | Path) -> None:
    """Write `config.json` and `model.safetensors` to `folder`, made if need be; each is replaced whole."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        weights = {name: w.detach().cpu().contiguous() for name, w in drafter.state_dict().items()}
        part = path / f"{WEIGHTS}.part"
        save_file(weights, part, metadata={"format": "pt"})
        os.replace(part, path / WEIGHTS)
        part = path / f"{CONFIG}.part"
        part.write_text(json.dumps(config_to_public(drafter.config), indent=2) + "\n", encoding="utf-8")
        os.replace(part, path / CONFIG)
    except OSError as error:
        raise UserError(f"{path}: the drafter cannot be saved there: {error.strerror or error}") from error


def _folder(folder: str | Path) -> Path:
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UserError(f"{folder}: no such folder; give a local folder that holds a DFlash drafter")
    return path


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: a JSON object is expected")
    return data


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        weights: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: not a whole safetensors file: {error}") from error
    return weights


def _read_shards(index: Path) -> dict[str, Tensor]:
    where = _read_json(index).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise UserError(f"{index}: weight_map (tensor name → file) is missing")
    weights: dict[str, Tensor] = {}
    for shard in sorted({str(file) for file in where.values()}):
        if Path(shard).name != shard:  # never outside the folder, whatever the index says
            raise UserError(f"{index}: {shard!r} is not the name of a file beside it")
        if not (index.parent / shard).is_file():
            raise UserError(f"{index}: names {shard}, which is not there; the download may be incomplete")
        weights.update(_read_tensors(index.parent / shard))
    if absent := [name for name in where if name not in weights]:
        raise UserError(f"{index}: names {_some(absent)}, which no shard holds")
    return weights


def _shape(tensor: Tensor) -> str:
    return "×".join(str(size) for size in tensor.shape)


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
