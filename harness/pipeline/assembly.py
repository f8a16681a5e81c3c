"""The parts of a run, built from a scenario and its settings."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from harness.core.errors import UserError
from harness.core.workload import Context, PipelineSettings, Scenario
from harness.pipeline.attention import Compilation, Unit
from harness.pipeline.config import DFlashConfig, build_target_layer_ids
from harness.pipeline.data import Document
from harness.pipeline.drafter import CheckpointKind, Drafter
from harness.pipeline.drafter_worker import DrafterWorker, Recipe, Regions
from harness.pipeline.loss import LossGradient
from harness.pipeline.mask import make_mask_builder
from harness.pipeline.optimizer import DrafterOptimizer
from harness.pipeline.packing import PackedStream
from harness.pipeline.replicas import GradientAverager
from harness.pipeline.schedule import warmup_steps
from harness.pipeline.support import backend_of, devices_of
from harness.pipeline.target import Target, load_qwen3, random_qwen3
from harness.pipeline.target_worker import ItemQueue
from harness.pipeline.tokenizer import Tokenizer, check_vocabulary
from harness.pipeline.weights import load_config, read_weights, set_weights

BUDGET_STEP = 16  # tokens by which each drafter's budget is below its predecessor's, with shapes=per_drafter


@dataclass(frozen=True)
class Frozen:
    """What the drafters of one device share of the target."""

    embedding: nn.Embedding
    lm_head: nn.Linear


def build_model(
    settings: PipelineSettings, tokenizer: Tokenizer, seed: int, device: torch.device, *, ends_only: bool = False
) -> Qwen3ForCausalLM:
    """The target model that the settings ask for: from a folder, or random (drawn on `device`: a large one is slow
    to draw on the CPU). `ends_only`: embedding and `lm_head` as in the whole model, and no layers."""
    s = settings
    dtype: torch.dtype = getattr(torch, s.dtype)
    if s.target_model:
        model = load_qwen3(s.target_model, dtype, ends_only=ends_only)
    else:
        model = random_qwen3(
            vocab_size=s.vocab_size or tokenizer.vocab_size,
            hidden_size=s.hidden_size,
            intermediate_size=s.intermediate_size,
            layers=s.target_layers,
            heads=s.heads,
            kv_heads=s.kv_heads,
            head_dim=s.head_dim,
            rope_theta=s.rope_theta,
            eps=s.eps,
            max_positions=s.tokens,
            seed=sub_seed(seed, "target"),
            device=device,
            ends_only=ends_only,
        ).to(dtype)
    check_vocabulary(tokenizer, model.get_input_embeddings().num_embeddings)
    return model


def drafter_config(settings: PipelineSettings, model: Qwen3ForCausalLM) -> DFlashConfig:
    """The shape of the drafters: that of `drafter_model`, which must fit `model`, or what the settings ask for."""
    s = settings
    dtype: torch.dtype = getattr(torch, s.dtype)
    if not s.drafter_model:
        return DFlashConfig.from_transformers(
            model.config,
            mask_token_id=model.config.vocab_size - 1 if s.mask_token_id < 0 else s.mask_token_id,
            block_size=s.block_size,
            num_hidden_layers=s.drafter_layers,
            target_layer_ids=build_target_layer_ids(model.config.num_hidden_layers, s.tapped),
            dtype=dtype,
        )
    config = load_config(s.drafter_model, dtype=dtype)
    for what, drafter, target in (
        ("hidden size", config.hidden_size, model.config.hidden_size),
        ("number of target layers", config.num_target_layers, model.config.num_hidden_layers),
        ("vocabulary", config.vocab_size, model.config.vocab_size),
    ):
        if drafter != target:
            raise UserError(
                f"drafter_model: {s.drafter_model} is for a target of another {what} ({drafter}) than this one "
                f"({target}); give the target_model that it was made for"
            )
    return config


def read_initial_weights(settings: PipelineSettings) -> dict[str, Tensor] | None:
    """The weights that all drafters begin with; None: random ones."""
    return read_weights(settings.drafter_model) if settings.drafter_model else None


def build_targets(
    model: Qwen3ForCausalLM, layer_ids: Sequence[int], devices: Sequence[torch.device]
) -> dict[torch.device, Target]:
    """A target on each device, which all target threads of that device share; `model` itself goes to the first."""
    models = [model, *(copy.deepcopy(model) for _ in devices[1:])]
    return {d: Target(m.to(d), layer_ids) for d, m in zip(devices, models, strict=True)}


def share_frozen(targets: dict[torch.device, Target], devices: Sequence[torch.device]) -> dict[torch.device, Frozen]:
    """Embedding and output projection on each device: the target's own where there is one, else a copy."""
    shared = {}
    some = next(iter(targets.values()))
    for device in devices:
        if device in targets:
            shared[device] = Frozen(targets[device].embedding, targets[device].lm_head)
        else:
            shared[device] = Frozen(copy.deepcopy(some.embedding).to(device), copy.deepcopy(some.lm_head).to(device))
    return shared


def ends_of(model: Qwen3ForCausalLM, device: torch.device) -> Frozen:
    """What a drafter on `device` needs of a model that is no target here; it is moved there."""
    model = model.eval().requires_grad_(False)
    return Frozen(model.model.embed_tokens.to(device), model.lm_head.to(device))


def place_of(scenario: Scenario, number: int) -> tuple[str, torch.device]:
    """Name and device of drafter `number`."""
    devices = devices_of(scenario, "drafter")
    return f"drafter-{number}", devices[number % len(devices)]


def build_stream(
    settings: PipelineSettings,
    scenario: Scenario,
    documents: Sequence[Document],
    *,
    pad_id: int,
    block_size: int,
    drafter: int,
) -> PackedStream:
    """The batches of one drafter, shaped as the axis `shapes` says.

    fixed: padded to `tokens`. variable: as long as the documents that were packed. per_drafter: padded to a
    budget of the drafter's own, `tokens` less BUDGET_STEP for each drafter before it.
    """
    budget = settings.tokens
    if scenario.shapes == "per_drafter":
        budget -= BUDGET_STEP * drafter
    if budget < block_size + 1:
        raise UserError(
            f"shapes={scenario.shapes}: drafter {drafter} would have {budget} tokens a sequence, but a block and its "
            f"context need {block_size + 1}; raise tokens (now {settings.tokens})"
        )
    return PackedStream(
        documents,
        drafter=drafter,
        drafters=scenario.drafters,
        budget=budget,
        batch=settings.batch,
        padded=scenario.shapes != "variable",
        pad_id=pad_id,
        seed=sub_seed(scenario.seed, "data"),
    )


def build_drafter(
    settings: PipelineSettings,
    scenario: Scenario,
    config: DFlashConfig,
    frozen: dict[torch.device, Frozen],
    weights: Mapping[str, Tensor] | None,
    *,
    number: int,
    queue: ItemQueue,
    producers: Callable[[], Sequence[str]],
    averager: GradientAverager | None,
    ctx: Context,
) -> DrafterWorker:
    """Drafter `number`: all begin with the same weights, each draws anchors of its own."""
    s = settings
    name, device = place_of(scenario, number)
    graphed = scenario.cudagraphs == "manual"
    regions = Regions(ctx, name)
    compilation = _compilation(settings, scenario)
    drafter = _drafter(settings, scenario, config, compilation, weights, device, regions)
    return DrafterWorker(
        name,
        device,
        drafter=drafter,
        embedding=frozen[device].embedding,
        lm_head=frozen[device].lm_head,
        build_mask=make_mask_builder(
            compile=scenario.mask == "compiled",
            backend=compilation.backend,
            dynamic=compilation.dynamic,
            own_code=compilation.own_code,
        ),
        optimizer=DrafterOptimizer(
            list(drafter.parameters()),
            learning_rate=s.learning_rate,
            weight_decay=s.weight_decay,
            clip=s.clip,
            total_steps=scenario.steps,
            warmup_steps=warmup_steps(scenario.steps, s.warmup_ratio),
        ),
        recipe=Recipe(
            block_size=config.block_size,
            anchors=s.anchors,
            mask_token_id=config.mask_token_id,
            gamma=s.gamma or None,
            loss_chunk=s.loss_chunk,
            loss_gradient=cast(LossGradient, s.loss_gradient),
            capture_error_mode=s.capture_error_mode if graphed else "",
            skip_errors=scenario.on_error == "skip",
        ),
        queue=queue,
        producers=producers,
        drafters=scenario.drafters,
        averager=averager,
        seed=sub_seed(scenario.seed, f"anchors/{number}"),
        code=name if compilation.own_code else "shared",
        regions=regions,
        ctx=ctx,
    )


def _compilation(settings: PipelineSettings, scenario: Scenario) -> Compilation:
    return Compilation(
        unit=cast(Unit, scenario.compile),
        backend=backend_of(scenario),
        dynamic={"auto": None, "true": True, "false": False}[settings.dynamic],
        mode="reduce-overhead" if scenario.cudagraphs == "trees" else None,
        own_code=scenario.code == "each",
    )


def _drafter(
    settings: PipelineSettings,
    scenario: Scenario,
    config: DFlashConfig,
    compilation: Compilation,
    weights: Mapping[str, Tensor] | None,
    device: torch.device,
    regions: Regions,
) -> Drafter:
    """The model on its device, with the given weights or drawn ones."""
    with torch.device("meta"):  # a constructor draws weights, twice, that nobody wants: half a minute for a billion
        drafter = Drafter(
            config,
            compilation=compilation,
            checkpoint=cast(CheckpointKind, scenario.checkpoint),
            keep_rng_state=scenario.cudagraphs != "manual",
            around_attention=regions.attention,
        )
    if weights is None:
        # Drawn in float32 whatever the dtype, so that runs in two dtypes begin with the same weights, but for rounding.
        drawn_on = device if device.type == "cuda" else torch.device("cpu")
        generator = torch.Generator(drawn_on).manual_seed(sub_seed(scenario.seed, "drafter"))
        drafter.float().to_empty(device=drawn_on).init_weights(generator)
    else:
        drafter.to_empty(device="cpu")
        set_weights(drafter, weights, settings.drafter_model)
    return drafter.to(device, config.dtype)


def sub_seed(seed: int, use: str) -> int:
    """A seed of its own for each use, so that no two draw the same numbers."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{use}".encode()).digest()[:8], "big") >> 1
