"""A small transformer with `flex_attention`, and what of it the axis `compile` compiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from harness.core.workload import HOSTED, INDUCTOR_EAGER, Scenario

Around = Callable[[], AbstractContextManager[None]]
"""Opens the region that attention runs in."""


class Layer(nn.Module):
    """Attention and an MLP, each behind a norm. x: [B, S, width]."""

    def __init__(self, width: int, heads: int, attend: Callable[..., Any]) -> None:
        super().__init__()
        self.heads = heads
        self.attend = attend
        self.norm_in, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, mask: BlockMask, around: Around) -> Tensor:
        """[B, S, width]"""
        B, S, width = x.shape
        q, k, v = self.qkv(self.norm_in(x)).view(B, S, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        with around():
            y: Tensor = self.attend(q, k, v, block_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(B, S, width))
        both: Tensor = x + self.mlp(self.norm_out(x))
        return both


class Model(nn.Module):
    """Tokens [B, S] to logits [B, S, vocabulary]. `recompute`: the checkpoint mode of each layer."""

    def __init__(
        self, *, vocabulary: int, width: int, heads: int, layers: int, attend: Callable[..., Any], recompute: str = "none"
    ) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, attend) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor, mask: BlockMask, around: Around) -> Tensor:
        """Logits."""
        x = self.embedding(tokens)
        for layer in self.layers:
            if self.recompute == "none" or not torch.is_grad_enabled():
                x = layer(x, mask, around)
            else:
                x = checkpoint(layer, x, mask, around, use_reentrant=self.recompute == "reentrant")
        logits: Tensor = self.head(x)
        return logits


def around_attention(scenario: Scenario, open_region: Around) -> Around:
    """The region of attention; none where attention is inside of what is compiled."""
    return open_region if scenario.compile in ("attention", "none") else nullcontext


def causal_mask(length: int, device: torch.device) -> BlockMask:
    """Each position sees itself and what came before."""
    return create_block_mask(_causal, None, None, length, length, device=str(device))


def _causal(_b: Tensor, _h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
    return q >= kv


def backend_of(scenario: Scenario) -> str:
    """As for the pipeline: "auto" is inductor on CUDA, aot_eager on the CPU, inductor_eager on `hosted:0`."""
    if scenario.backend != "auto":
        return scenario.backend
    if scenario.devices == HOSTED:
        return INDUCTOR_EAGER
    return "aot_eager" if scenario.devices == "cpu" else "inductor"


def compiled(function: Callable[..., Any], scenario: Scenario) -> Callable[..., Any]:
    """`function` through `torch.compile`, a graph for each shape."""
    made: Callable[..., Any] = torch.compile(function, backend=backend_of(scenario), dynamic=False)
    return made


def build(scenario: Scenario, sizes: Mapping[str, int], *, device: torch.device) -> Model:
    """The model, compiled as the axis `compile` says; the seed of the scenario decides its weights."""
    torch.manual_seed(scenario.seed)
    flex: Callable[..., Any] = flex_attention
    attend = compiled(flex, scenario) if scenario.compile == "attention" else flex
    model = _model(sizes, attend, scenario.checkpoint).to(device)
    if scenario.compile == "layer":
        for layer in model.layers:
            layer.forward = compiled(layer.forward, scenario)
    elif scenario.compile == "drafter":
        model.forward = compiled(model.forward, scenario)  # type: ignore[method-assign]
    return model


def eager_twin(model: Model, sizes: Mapping[str, int], *, device: torch.device) -> Model:
    """The same weights with another attention, torch's own kernel, and nothing compiled."""
    twin = _model(sizes, _dense, "none").to(device)
    twin.load_state_dict(model.state_dict())
    return twin


def _model(sizes: Mapping[str, int], attend: Callable[..., Any], recompute: str) -> Model:
    shape = {name: sizes[name] for name in ("vocabulary", "width", "heads", "layers")}
    return Model(**shape, attend=attend, recompute=recompute)


def _dense(q: Tensor, k: Tensor, v: Tensor, block_mask: BlockMask) -> Tensor:
    """Causal attention, as `block_mask` has it too."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
