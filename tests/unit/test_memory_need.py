"""The memory a scenario cannot do without: the numbers against real modules, the placement, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from harness.control.memory_need import memory_of, needs
from harness.control.model_sizes import BYTE_VOCABULARY, ModelSizes, model_sizes
from harness.control.skips import skip_reason
from harness.core.errors import SettingError
from harness.core.matrix import load_matrix
from harness.core.scenario import Scenario
from harness.core.settings import PipelineSettings
from harness.pipeline.assembly import build_model, drafter_config
from harness.pipeline.config import DFlashConfig, build_target_layer_ids
from harness.pipeline.drafter import Drafter
from harness.pipeline.graphed_step import WARM_STEPS
from harness.pipeline.optimizer import DrafterOptimizer
from harness.pipeline.tokenizer import ByteTokenizer
from harness.pipeline.weights import save_drafter

ROOT = Path(__file__).parents[2]
H200 = {"name": "NVIDIA H200", "memory_mib": 143771, "driver": "580"}
ENVIRONMENT: dict[str, Any] = {"torch": "2.11.0+cu130", "gpus": [H200] * 2, "variables": {}, "memory_usable_bytes": 8 << 30}
QWEN3_8B: dict[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 12288, "heads": 32, "kv_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "target_layers": 36, "tapped": 5, "drafter_layers": 5, "dtype": "bfloat16",
}  # fmt: skip
QWEN25_HALF_B: dict[str, Any] = {
    "hidden_size": 896, "intermediate_size": 4864, "heads": 14, "kv_heads": 2, "head_dim": 64, "vocab_size": 151936,
    "target_layers": 24, "tapped": 5, "drafter_layers": 5,
}  # fmt: skip
ODD: dict[str, Any] = {"hidden_size": 24, "intermediate_size": 40, "heads": 6, "kv_heads": 3, "head_dim": 10, "tapped": 1}


def numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(s: PipelineSettings, tied: bool = False) -> tuple[Qwen3ForCausalLM, Drafter]:
    """The two models of these sizes, without memory."""
    config = Qwen3Config(
        vocab_size=s.vocab_size, hidden_size=s.hidden_size, intermediate_size=s.intermediate_size,
        num_hidden_layers=s.target_layers, num_attention_heads=s.heads, num_key_value_heads=s.kv_heads,
        head_dim=s.head_dim, tie_word_embeddings=tied,
    )  # fmt: skip
    ids = build_target_layer_ids(s.target_layers, s.tapped)
    of_target = DFlashConfig.from_transformers(
        config, mask_token_id=0, num_hidden_layers=s.drafter_layers, target_layer_ids=ids, rope_theta=1e4
    )
    with torch.device("meta"):
        return Qwen3ForCausalLM(config), Drafter(of_target)


@pytest.mark.parametrize(
    ("values", "drafter"), [(QWEN3_8B, 1_048_626_432), (QWEN25_HALF_B, 78_572_672), ({**ODD, "vocab_size": 77}, None)]
)
def test_parameters_are_counted_as_the_modules_have_them(values: dict[str, Any], drafter: int | None) -> None:
    settings = PipelineSettings(**values)
    target, made = on_meta(settings)
    frozen = numel(target.get_input_embeddings()) + numel(target.lm_head)
    assert model_sizes(settings) == ModelSizes(numel(target), numel(made), frozen)
    assert drafter in (None, numel(made))


@pytest.mark.parametrize("values", [{}, ODD, {"vocab_size": 300, "target_layers": 4, "drafter_layers": 3}])
def test_the_pipelines_own_models_have_these_sizes(values: dict[str, Any]) -> None:
    settings = PipelineSettings(**values)
    model = build_model(settings, ByteTokenizer(), 0, torch.device("cpu"))
    sizes = model_sizes(settings)
    assert sizes is not None
    assert sizes.target == numel(model)
    assert sizes.drafter == numel(Drafter(drafter_config(settings, model)))
    assert sizes.frozen == numel(model.model.embed_tokens) + numel(model.lm_head)
    assert ByteTokenizer().vocab_size == BYTE_VOCABULARY


@pytest.mark.parametrize("tied", [False, True])
def test_a_folders_target_is_counted_by_its_configuration(tmp_path: Path, tied: bool) -> None:
    shape = PipelineSettings(**ODD, vocab_size=77)
    target, drafter = on_meta(shape, tied)
    target.config.save_pretrained(tmp_path)
    sizes = model_sizes(PipelineSettings(target_model=str(tmp_path), tapped=1))
    assert sizes == ModelSizes(numel(target), numel(drafter), 2 * 77 * 24), "tied: a copy for a drafter is two tables"
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    assert model_sizes(PipelineSettings(target_model=str(tmp_path))) is None


def test_a_folders_drafter_is_counted_by_its_weights(tmp_path: Path) -> None:
    settings = PipelineSettings(drafter_model=str(tmp_path), drafter_layers=4)
    assert model_sizes(settings) is None
    model = build_model(PipelineSettings(), ByteTokenizer(), 0, torch.device("cpu"))
    drafter = Drafter(drafter_config(PipelineSettings(), model))
    save_drafter(drafter, tmp_path)
    sizes = model_sizes(settings)
    assert sizes is not None
    assert sizes.drafter == numel(drafter)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:100])
    assert model_sizes(settings) is None

    (tmp_path / "model.safetensors").unlink()
    named: dict[str, str] = {}
    for number, (name, tensor) in enumerate(drafter.state_dict().items()):
        save_file({name: tensor}, tmp_path / f"{number}.safetensors")
        named[name] = f"{number}.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": named}))
    assert model_sizes(settings) == sizes
    (tmp_path / "3.safetensors").unlink()
    assert model_sizes(settings) is None


def kept(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of different tensors."""
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t is not None and t.ndim}
    return sum(found.values())


class Trained:
    """A tiny drafter and its optimizer, as the pipeline makes them."""

    def __init__(self, dtype: str, fused: bool | None = None) -> None:
        settings = PipelineSettings(dtype=dtype)
        model = build_model(settings, ByteTokenizer(), 0, torch.device("cpu"))
        self.parameters = list(Drafter(drafter_config(settings, model)).parameters())
        self.optimizer = DrafterOptimizer(
            self.parameters, learning_rate=1e-3, weight_decay=0.0, clip=1.0, total_steps=4, warmup_steps=1, fused=fused
        )

    def backward(self) -> None:
        for parameter in self.parameters:
            parameter.grad = torch.ones_like(parameter)

    def bytes(self) -> int:
        """All it keeps; AdamW's counters of steps, of a few bytes, left out."""
        adamw = self.optimizer._adamw
        masters = [p for group in adamw.param_groups for p in group["params"]]
        states = [t for state in adamw.state.values() for t in state.values()]
        return kept([t for p in (*self.parameters, *masters) for t in (p, p.grad)] + states)

    def most_in_step(self, others: Sequence[Trained] = ()) -> int:
        """Bytes at the end of AdamW's part of a step, those of others with it."""
        found: list[int] = []
        self.optimizer._adamw.register_step_post_hook(lambda *_: found.append(sum(t.bytes() for t in (self, *others))))
        self.backward()
        self.optimizer.step(0)
        return found[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("together", [False, True])
def test_bytes_by_formula_are_the_bytes_that_optimizers_keep(dtype: str, together: bool) -> None:
    """Two drafters: the first has stepped and, where all step at the same time, has its next gradients."""
    first, second = Trained(dtype), Trained(dtype)
    first.backward()
    first.optimizer.step(0)
    if together:
        first.backward()
    counted = second.most_in_step([first])
    settings = PipelineSettings(dtype=dtype)
    sizes = model_sizes(settings)
    assert sizes is not None
    scenario = Scenario(drafters=2, replicas="synchronised" if together else "independent", devices="cuda:0/cuda:1")
    found = needs(scenario, settings, sizes)["cuda:1"]
    assert found.bytes - sizes.frozen * (4 if dtype == "float32" else 2) == counted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_by_formula_are_those_of_graphs_that_keep_their_gradients(dtype: str) -> None:
    """As on CUDA, where one kernel applies all gradients."""
    first, second = Trained(dtype, fused=True), Trained(dtype, fused=True)
    first.backward()
    first.optimizer.step(0)
    first.backward()
    counted = second.most_in_step([first])
    settings = PipelineSettings(dtype=dtype)
    sizes = model_sizes(settings)
    assert sizes is not None
    found = needs(Scenario(drafters=2, cudagraphs="manual", devices="cuda:0/cuda:1"), settings, sizes)["cuda:1"]
    assert found.bytes - sizes.frozen * (4 if dtype == "float32" else 2) == counted


SIZES = ModelSizes(target=1_000, drafter=100, frozen=10)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        # float32, 100 parameters: a drafter 1200 and a gradient of 400; a target 4000; frozen parts alone 40
        ({"devices": "cpu", "drafters": 3}, {"cpu": 4000 + 3 * 1200 + 400}),
        ({"devices": "hosted:0", "drafters": 1}, {"hosted:0": 4000 + 1200 + 400}),
        ({"devices": "cuda:0+cuda:1", "drafters": 3}, {"cuda:0": 4000 + 2800, "cuda:1": 40 + 1600}),
        ({"devices": "cuda:0+cuda:1", "drafters": 3, "targets": 2}, {"cuda:0": 6800, "cuda:1": 4000 + 1600}),
        ({"devices": "cuda:0+cuda:1", "drafters": 1, "targets": 1}, {"cuda:0": 4000 + 1600}),
        (
            {"devices": "cuda:0/cuda:1+cuda:2", "drafters": 3},
            {"cuda:0": 4000, "cuda:1": 40 + 2800, "cuda:2": 40 + 1600},
        ),
        ({"devices": "cuda:0+cuda:1/cuda:1", "drafters": 1}, {"cuda:0": 4000, "cuda:1": 40 + 1600}),
        ({"devices": "cpu", "drafters": 2, "replicas": "synchronised"}, {"cpu": 4000 + 2 * 1600}),
        ({"devices": "cpu", "drafters": 2, "replicas": "synchronised", "steps": 1}, {"cpu": 4000 + 2800}),
        # graphs keep their gradients; on CUDA AdamW is told the factor, so float32 ones are not copied to be clipped
        ({"devices": "cuda:0", "drafters": 2, "cudagraphs": "manual"}, {"cuda:0": 4000 + 2 * 1600}),
        ({"devices": "cuda:0", "drafters": 2, "cudagraphs": "manual", "steps": WARM_STEPS}, {"cuda:0": 4000 + 2800}),
        # the target in the parent, and at the same time one drafter at least with the frozen parts of its own
        ({"devices": "cpu", "drafters": 3, "lock": "process"}, {"cpu": 4000 + 40 + 1200 + 400}),
        (
            {"devices": "cuda:0/cuda:1", "drafters": 3, "lock": "process"},
            {"cuda:0": 4000, "cuda:1": 40 + 1200 + 400},
        ),
    ],
)
def test_what_lies_where(axes: dict[str, Any], expected: dict[str, int]) -> None:
    found = needs(Scenario(**axes), PipelineSettings(), SIZES)
    assert {device: need.bytes for device, need in found.items()} == expected


def test_what_is_too_much_says_device_need_and_what_there_is() -> None:
    scenario = Scenario(devices="cuda:0/cuda:1", drafters=10)
    assert skip_reason(scenario, ENVIRONMENT, QWEN3_8B) == (
        "devices=cuda:0/cuda:1 needs at least 144.9 GiB on cuda:1 for 10 drafters of 1.05 B parameters; it has 140.4 GiB"
    )
    assert skip_reason(scenario.replace(drafters=9), ENVIRONMENT, QWEN3_8B) == ""
    alone = skip_reason(Scenario(devices="cuda:0/cuda:1"), ENVIRONMENT, {**QWEN3_8B, "target_layers": 400})
    assert "on cuda:0 for a target of 78.4 B parameters; it has 140.4 GiB" in alone
    on_cpu = skip_reason(Scenario(drafters=1), ENVIRONMENT, QWEN3_8B)
    assert "on cpu for 1 drafter of 1.05 B parameters and a target of 8.19 B; this machine has 8.0 GiB" in on_cpu
    assert "on hosted:0 for 1 drafter" in skip_reason(Scenario(devices="hosted:0", drafters=1), ENVIRONMENT, QWEN3_8B)


@pytest.mark.parametrize(
    ("axes", "facts", "settings"),
    [
        ({"devices": "cuda:0"}, {"gpus": [{**H200, "memory_mib": None}]}, {}),
        ({"devices": "cpu"}, {"memory_usable_bytes": None}, {}),
        ({"devices": "cpu", "workload": "trainer"}, {}, {}),
        ({"devices": "cpu"}, {}, {"target_model": "no/such/folder"}),
        ({"devices": "cpu"}, {}, {"drafter_model": "no/such/folder"}),
    ],
)
def test_nothing_is_refused_where_a_fact_is_missing(
    axes: dict[str, Any], facts: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert skip_reason(Scenario(drafters=99, **axes), {**ENVIRONMENT, **facts}, {**QWEN3_8B, **settings}) == ""


def test_a_wrong_setting_is_an_error() -> None:
    with pytest.raises(SettingError, match="hidden_sise"):
        skip_reason(Scenario(), ENVIRONMENT, {"hidden_sise": 3})


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.toml")), ids=lambda path: path.stem)
def test_no_scenario_that_ships_is_refused_on_h200s(path: Path) -> None:
    matrix = load_matrix(path)
    refused = [skip_reason(scenario, ENVIRONMENT, matrix.pipeline) for scenario in matrix.scenarios]
    assert not [reason for reason in refused if "GiB" in reason]


def test_the_bound_is_below_a_measured_peak() -> None:
    """README: 29.5 GB for a step of one drafter at real size, on a GPU of its own."""
    matrix = load_matrix(ROOT / "scenarios" / "h200-real.toml")
    settings = PipelineSettings(**matrix.pipeline)
    sizes = model_sizes(settings)
    assert sizes is not None
    assert 0.7 * 29.5e9 < needs(matrix.scenarios[0], settings, sizes)["cuda:1"].bytes < 29.5e9


SMALL, LARGE = {**H200, "memory_mib": 1024}, {**H200, "memory_mib": 4096}


@pytest.mark.parametrize(
    ("variables", "device", "mebibytes"),
    [
        ({}, "cuda:0", 4096),  # CUDA puts the fastest first, whichever that is
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "cuda:0", 1024),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "cuda:1", 4096),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}, "cuda:1", 1024),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}, "cuda:0", 4096),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "GPU-1234"}, "cuda:0", 4096),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "cuda:0", 4096),
    ],
)
def test_which_gpu_a_device_is(variables: dict[str, str], device: str, mebibytes: int) -> None:
    assert memory_of(device, {"gpus": [SMALL, LARGE], "variables": variables}) == mebibytes << 20
