"""The target against transformers' own forward, packed documents against each alone, and folders of models."""

import json
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3ForCausalLM

from harness.core.errors import UserError
from harness.pipeline.packing import PADDING
from harness.pipeline.target import Target, document_causal_mask, load_qwen3, random_qwen3

WAIT_S = 60.0


def model(*, layers: int = 6, seed: int = 0) -> Qwen3ForCausalLM:
    return random_qwen3(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_dim=8,
        rope_theta=1e4,
        eps=1e-6,
        max_positions=64,
        seed=seed,
    )


def sequence(lengths: list[int], padding: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, positions and document ids of one packed sequence."""
    total = sum(lengths) + padding
    ids = torch.randint(0, 50, (1, total), generator=torch.Generator().manual_seed(total))
    positions = torch.cat([torch.arange(n) for n in (*lengths, padding)])[None]
    documents = [[i] * n for i, n in enumerate(lengths)] + [[PADDING] * padding]
    return ids, positions, torch.tensor([[i for part in documents for i in part]])


@pytest.mark.parametrize("layer_ids", [(1, 3), (0, 5), (2,), (1, 1)])
def test_features_are_transformers_hidden_states(layer_ids: tuple[int, ...]) -> None:
    """To the bit, the last layer included (which transformers puts through the final norm)."""
    ids, positions, documents = sequence([7, 5], padding=3)
    target = Target(model(), layer_ids)
    features, last = target(ids, positions, documents)
    theirs = target.model(
        input_ids=ids,
        position_ids=positions,
        attention_mask=document_causal_mask(documents),
        output_hidden_states=True,
        use_cache=False,
    )
    assert features.equal(torch.cat([theirs.hidden_states[i + 1] for i in layer_ids], dim=-1))
    assert last.equal(theirs.hidden_states[-1])
    assert target.lm_head(last).equal(theirs.logits)
    assert features.shape == (1, 15, 32 * len(layer_ids))


def test_one_document_is_plain_causal_attention() -> None:
    ids, positions, documents = sequence([12])
    target = Target(model(), (1, 3))
    features, _ = target(ids, positions, documents)
    theirs = target.model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
    torch.testing.assert_close(features, torch.cat([theirs[2], theirs[4]], dim=-1))


def test_packed_documents_come_out_as_if_alone() -> None:
    lengths = [7, 5, 1]
    ids, positions, documents = sequence(lengths, padding=4)
    target = Target(model(), (1, 3))
    packed, packed_last = target(ids, positions, documents)
    start = 0
    for length in lengths:
        part = slice(start, start + length)
        alone, alone_last = target(
            ids[:, part], torch.arange(length)[None], torch.zeros((1, length), dtype=torch.int64)
        )
        torch.testing.assert_close(packed[:, part], alone)
        torch.testing.assert_close(packed_last[:, part], alone_last)
        start += length
    assert torch.isfinite(packed).all()  # padding too


def test_nothing_is_trainable_and_no_graph_is_kept() -> None:
    target = Target(model(), (1, 3))
    assert not any(p.requires_grad for p in target.model.parameters())
    assert not target.model.training
    features, last = target(*sequence([5]))
    assert not features.requires_grad
    assert not last.requires_grad


def test_threads_may_share_a_target() -> None:
    """Four threads, each with sequences of its own: what each gets is what it gets alone."""
    target = Target(model(), (1, 3))
    inputs = [sequence([4 + i, 3]) for i in range(4)]
    alone = [target(*given)[0] for given in inputs]
    start = threading.Barrier(4)
    equal: dict[int, list[bool]] = {}

    def work(i: int) -> None:
        start.wait(WAIT_S)
        equal[i] = [target(*inputs[i])[0].equal(alone[i]) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert equal == {i: [True] * 20 for i in range(4)}


def test_weights_depend_on_the_seed_alone_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    first = model().state_dict()
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(7)
    again, other = model().state_dict(), model(seed=1).state_dict()
    assert all(first[name].equal(again[name]) for name in first)
    assert not first["lm_head.weight"].equal(other["lm_head.weight"])


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(UserError, match="layers 0 to 5; layer 6"):
        Target(model(), (1, 6))


# ---- folders ----


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model().save_pretrained(tmp_path / "qwen", safe_serialization=True)
    return tmp_path / "qwen"


def edit(folder: Path, **keys: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))


def test_a_model_from_a_folder_is_the_one_that_was_saved(folder: Path) -> None:
    loaded = Target(load_qwen3(str(folder), torch.float32), (1, 3))
    assert loaded(*sequence([9]))[0].equal(Target(model(), (1, 3))(*sequence([9]))[0])
    assert load_qwen3(str(folder), torch.bfloat16).lm_head.weight.dtype == torch.bfloat16


def test_a_model_in_shards(tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    model().save_pretrained(folder, max_shard_size="40KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    loaded = load_qwen3(str(folder), torch.float32)
    assert loaded.lm_head.weight.equal(model().lm_head.weight)
    shards[1].unlink()
    with pytest.raises(UserError, match=f"lacks {shards[1].name}"):
        load_qwen3(str(folder), torch.float32)


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(model().state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"only pickled weights \(pytorch_model.bin\).*safetensors"):
        load_qwen3(str(folder), torch.float32)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("no folder", "is no folder"),
        ("no config", "has no config.json"),
        ("cut config", "cannot be read"),
        ("no weights", "has no weights"),
        ("cut weights", "cannot be loaded"),
        ("other architecture", 'of type "llama"; only "qwen3"'),
        ("sliding window", "sliding-window"),
        ("weight missing", "lacks 1 weights, among them model.norm.weight"),
        ("shape", "cannot be loaded"),
    ],
)
def test_folders_that_are_no_target(folder: Path, kind: str, said: str) -> None:
    weights = folder / "model.safetensors"
    match kind:
        case "no folder":
            folder = folder / "deeper"
        case "no config":
            (folder / "config.json").unlink()
        case "cut config":
            (folder / "config.json").write_text('{"model_type": "qw')
        case "no weights":
            weights.unlink()
        case "cut weights":
            weights.write_bytes(weights.read_bytes()[:1000])
        case "other architecture":
            edit(folder, model_type="llama")
        case "sliding window":
            edit(folder, use_sliding_window=True)
        case "weight missing":
            tensors = load_file(weights)
            del tensors["model.norm.weight"]
            save_file(tensors, weights, metadata={"format": "pt"})
        case "shape":
            edit(folder, intermediate_size=64)
    with pytest.raises(UserError) as caught:
        load_qwen3(str(folder), torch.float32)
    assert said in str(caught.value)
    assert str(caught.value).startswith("target_model: ")
    assert "\n" not in str(caught.value)
