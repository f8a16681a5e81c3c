"""Drafters on disk: the public layout is read and written; what does not fit is refused in one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from drafter_support import item, tiny
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config

from harness.core.errors import UserError
from harness.pipeline.drafter import Drafter
from harness.pipeline.public_layout import config_from_public, config_to_public
from harness.pipeline.weights import load_config, load_drafter, load_weights, read_weights, save_drafter

# What z-lab/Qwen3-8B-DFlash-b16 says of itself, as far as it matters here.
PUBLIC: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "attention_bias": False,
    "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "dtype": "bfloat16",
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "layer_types": ["full_attention"] * 5,
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "num_target_layers": 36,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_drafter(Drafter(tiny(dtype=torch.float32)), tmp_path / "drafter")
    return tmp_path / "drafter"


def test_a_saved_drafter_comes_back_bit_for_bit(tmp_path: Path) -> None:
    config = tiny(dtype=torch.bfloat16, num_hidden_layers=3, rms_norm_eps=1e-5)
    drafter = Drafter(config)
    save_drafter(drafter, tmp_path / "new" / "drafter")
    loaded = load_drafter(tmp_path / "new" / "drafter", checkpoint="reentrant")
    assert loaded.config == config
    assert loaded.checkpoint == "reentrant"
    assert all(p.device.type == "cpu" and p.requires_grad for p in loaded.parameters())
    x = item(config)
    assert torch.equal(loaded(x.noise, x.features, x.positions), drafter(x.noise, x.features, x.positions))
    assert sorted(p.name for p in (tmp_path / "new" / "drafter").iterdir()) == ["config.json", "model.safetensors"]


def test_saving_again_replaces(folder: Path) -> None:
    drafter = Drafter(tiny(dtype=torch.float32, num_hidden_layers=1))
    save_drafter(drafter, folder)
    assert load_config(folder).num_hidden_layers == 1
    load_weights(drafter, folder)


def test_the_public_configuration() -> None:
    config = config_from_public(PUBLIC, "config.json")
    assert (config.num_taps, config.block_size, config.mask_token_id) == (5, 16, 151669)
    assert (config.num_target_layers, config.num_hidden_layers, config.rope_theta) == (36, 5, 1e6)
    assert config.dtype == torch.bfloat16
    with torch.device("meta"):
        weights = Drafter(config).state_dict()
    assert len(weights) == 58  # tensors in its model.safetensors
    assert weights["fc.weight"].shape == (4096, 20480)
    assert sum(w.numel() for w in weights.values()) == 1_048_626_432


@pytest.mark.parametrize(
    "changes",
    [
        {"dflash_config": {**PUBLIC["dflash_config"], "block_size": 16}, "block_size": None},  # newer files
        {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},  # transformers 5
        {"dtype": None, "torch_dtype": "bfloat16"},  # transformers < 4.56
        {"num_target_layers": None},  # the depth that the taps imply
        {"dflash_config": {"mask_token_id": 151669}},  # the taps that the depth implies
        {"layer_types": None, "architectures": None},
    ],
)
def test_variants_of_the_layout_mean_the_same(changes: dict[str, Any]) -> None:
    data = {key: value for key, value in {**PUBLIC, **changes}.items() if value is not None}
    assert config_from_public(data, "") == config_from_public(PUBLIC, "")


def test_its_own_table_wins_over_the_top() -> None:
    data = {**PUBLIC, "dflash_config": {**PUBLIC["dflash_config"], "block_size": 8}}
    assert config_from_public(data, "").block_size == 8
    assert config_from_public(data, "", block_size=10, dtype=torch.float32).block_size == 10


def test_transformers_reads_what_is_written() -> None:
    config = tiny(num_hidden_layers=3)
    written = json.loads(json.dumps(config_to_public(config)))
    theirs = Qwen3Config.from_dict(written)
    assert theirs.hidden_size == 16
    assert theirs.layer_types == ["full_attention"] * 3
    assert theirs.rope_parameters["rope_theta"] == 100.0
    assert theirs.num_target_layers == 8
    assert theirs.block_size == 4
    assert theirs.dflash_config == {
        "block_size": 4,
        "mask_token_id": 49,
        "num_target_layers": 8,
        "target_layer_ids": [1, 4, 5],
    }
    assert config_from_public(written, "") == config
    assert config_from_public(theirs.to_dict(), "", dtype=torch.float64) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "4096"}, 'hidden_size must be a whole number, not "4096"'),
        ({"rms_norm_eps": None}, "rms_norm_eps is missing"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number"),
        ({"block_size": None}, "block_size is missing"),
        ({"dflash_config": None}, "mask_token_id is missing"),
        ({"dflash_config": [1]}, "dflash_config must be a table"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": "all"}}, "target_layer_ids must be a list"),
        ({"num_attention_heads": 30}, "30 is not a multiple of num_key_value_heads 8"),
        ({"dtype": "bf17"}, 'dtype must name a torch type such as bfloat16, not "bf17"'),
        ({"num_target_layers": None, "dflash_config": {"mask_token_id": 1}}, "num_target_layers is missing"),
        ({"architectures": ["DFlash2DraftModel"]}, "only DFlashDraftModel"),
        ({"layer_types": ["sliding_attention"] * 5}, "only full_attention is supported"),
        ({"attention_bias": True}, "attention_bias is true .*not supported"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
        ({"v_head_dim": 64}, "v_head_dim differs from head_dim"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "'yarn'"),
    ],
)
def test_other_drafters_are_refused_by_key(changes: dict[str, Any], message: str) -> None:
    data = {key: value for key, value in {**PUBLIC, **changes}.items() if value is not None}
    with pytest.raises(UserError, match=f"^some/config.json: .*{message}"):
        config_from_public(data, "some/config.json")


def shard(folder: Path) -> dict[str, Any]:
    """Cuts the weights in two files with an index, as large checkpoints are."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: weights[name] for name in names if files[name] == file}, folder / file)
    index = {"metadata": {"total_size": 1}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return index


def test_shards_are_put_together(folder: Path) -> None:
    whole = read_weights(folder)
    shard(folder)
    parts = read_weights(folder)
    assert parts.keys() == whole.keys()
    assert all(torch.equal(parts[name], whole[name]) for name in whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc.weight": "gone.safetensors"}, "names gone.safetensors, which is not there"),
        ({"fc.weight": "../outside.safetensors"}, "not the name of a file beside it"),
        ({"fd.weight": "model-00001-of-00002.safetensors"}, "names fd.weight, which no shard holds"),
    ],
)
def test_an_index_that_does_not_fit_its_shards(folder: Path, change: dict[str, str], message: str) -> None:
    index = shard(folder)
    index["weight_map"].update(change)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=message):
        read_weights(folder)


def test_an_index_without_a_map(folder: Path) -> None:
    shard(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UserError, match="weight_map"):
        read_weights(folder)


def test_weights_of_another_drafter_are_refused_with_all_that_is_wrong(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["norm.weight"]
    weights["fc.bias"] = torch.zeros(16)
    weights["hidden_norm.weight"] = torch.zeros(8)
    weights["layers.0.mlp.up_proj.weight"] = weights["layers.0.mlp.up_proj.weight"].to(torch.int8)
    save_file(weights, folder / "model.safetensors")
    drafter = Drafter(tiny(dtype=torch.float32))
    before = drafter.fc.weight.clone()
    with pytest.raises(UserError) as caught:
        load_weights(drafter, folder)
    assert str(caught.value) == (
        f"{folder}: the weights do not fit this drafter: missing norm.weight; unexpected fc.bias; "
        "of another shape: hidden_norm.weight is 8, not 16; "
        "not floating-point: layers.0.mlp.up_proj.weight is torch.int8"
    )
    assert torch.equal(drafter.fc.weight, before)


def test_a_long_list_is_cut(folder: Path) -> None:
    with pytest.raises(UserError, match=r"missing layers\.2\.[^;]* and 7 more$"):
        load_weights(Drafter(tiny(num_hidden_layers=3)), folder)


def test_weights_are_cast_to_the_drafters_dtype(folder: Path) -> None:
    drafter = load_drafter(folder, config_overrides={"dtype": torch.float64})
    assert drafter.fc.weight.dtype == torch.float64
    assert torch.equal(drafter.fc.weight.float(), read_weights(folder)["fc.weight"])


def test_pickled_weights_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(Drafter(tiny()).state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"only pickled weights \(pytorch_model.bin\).*safetensors.torch.save_file"):
        load_drafter(folder)


def test_a_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no weights there"):
        load_drafter(folder)


@pytest.mark.parametrize("content", [b"", b"not a safetensors file", b"\xff" * 64])
def test_damaged_weights(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"model\.safetensors: not a whole safetensors file"):
        load_drafter(folder)


def test_a_download_that_broke_off(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-5])
    with pytest.raises(UserError, match="not a whole safetensors file"):
        load_drafter(folder)


@pytest.mark.parametrize(("content", "message"), [("{", "not JSON"), ("[]", "a JSON object is expected")])
def test_a_damaged_configuration(folder: Path, content: str, message: str) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(UserError, match=f"config.json: {message}"):
        load_drafter(folder)


def test_no_configuration_and_no_folder(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"config\.json: cannot be read"):
        load_drafter(folder)
    with pytest.raises(UserError, match="no such folder; give a local folder"):
        load_drafter("z-lab/Qwen3-8B-DFlash-b16")


def test_a_place_where_nothing_can_be_saved(folder: Path) -> None:
    with pytest.raises(UserError, match="cannot be saved there"):
        save_drafter(Drafter(tiny()), folder / "config.json" / "inside")
