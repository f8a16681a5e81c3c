"""The DFlash drafter ("Block Diffusion for Flash Speculative Decoding", arXiv 2602.06036).

A few Qwen3-like layers that fill blocks of tokens in one pass. What is unusual: the target's hidden states,
projected once to the context C, are given to *every* layer as extra keys and values; only the blocks are
queries, and attention is not causal. Parameters carry the names of the public checkpoints. Embedding and
`lm_head` are the target's and no part of the drafter.

Shapes: Bt batch, S context length, q block tokens (N·B in training), d hidden size, K tapped layers,
Hq query heads, Hkv key/value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import silu
from torch.utils.checkpoint import checkpoint as checkpointed

from harness.core.errors import UserError
from harness.pipeline.attention import EAGER, AttentionFn, Compilation, Region, attend, inside
from harness.pipeline.config import DFlashConfig
from harness.pipeline.rotary import rotary_table, rotate

CheckpointKind = Literal["none", "reentrant", "non_reentrant"]


class Attention(nn.Module):
    """Attention of block tokens to the context and to their own block."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        d, D = config.hidden_size, config.head_dim
        self.head_dim = D
        self.q_proj = nn.Linear(d, config.num_attention_heads * D, bias=False)
        self.k_proj = nn.Linear(d, config.num_key_value_heads * D, bias=False)
        self.v_proj = nn.Linear(d, config.num_key_value_heads * D, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * D, d, bias=False)
        self.q_norm = nn.RMSNorm(D, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(D, eps=config.rms_norm_eps)
        self.attend: AttentionFn = attend

    def forward(self, u: Tensor, C: Tensor, cos: Tensor, sin: Tensor, block_mask: BlockMask | None) -> Tensor:
        query = self.q_norm(self._heads(self.q_proj(u)))
        key = self.k_norm(self._heads(torch.cat([self.k_proj(C), self.k_proj(u)], dim=1)))
        value = self._heads(torch.cat([self.v_proj(C), self.v_proj(u)], dim=1))
        out = self.attend(rotate(query, cos, sin), rotate(key, cos, sin), value, block_mask)
        projected: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return projected

    def _heads(self, x: Tensor) -> Tensor:
        """[Bt, T, H·D] → [Bt, H, T, D]."""
        return x.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DrafterLayer(nn.Module):
    """x ← x + attention(norm(x), C); x ← x + feed-forward(norm(x))."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = FeedForward(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x: Tensor, C: Tensor, cos: Tensor, sin: Tensor, block_mask: BlockMask | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), C, cos, sin, block_mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


def run_layers(
    layers: Sequence[DrafterLayer],
    x: Tensor,
    C: Tensor,
    cos: Tensor,
    sin: Tensor,
    block_mask: BlockMask | None,
) -> Tensor:
    """Block tokens through some of the layers: what is compiled for a layer, or for the whole stack."""
    for layer in layers:
        x = layer(x, C, cos, sin, block_mask)
    return x


class Drafter(nn.Module):
    """The whole drafter. `forward` is the paper's; the options say how it is run.

    attention         the attention call; `attend`, unless the caller has one of its own
    compilation       what `torch.compile` is put around
    checkpoint        recompute in backward what was not kept: a layer at a time, or the whole stack at once
                      when that is the compiled unit
    keep_rng_state    whether a recompute sets the random generators back, as torch does by default. Nothing here
                      draws; a CUDA-graph capture does not allow it
    around_attention  makes a context manager for each attention call or, when a layer or the stack is the
                      compiled unit, for each call of that, so that it is never traced. The recompute makes it
                      again, on CUDA on a thread of the autograd engine.
    """

    def __init__(
        self,
        config: DFlashConfig,
        *,
        attention: AttentionFn = attend,
        compilation: Compilation = EAGER,
        checkpoint: CheckpointKind = "none",
        keep_rng_state: bool = True,
        around_attention: Region | None = None,
    ) -> None:
        if checkpoint not in get_args(CheckpointKind):
            raise UserError(f"checkpoint is one of {', '.join(get_args(CheckpointKind))}, not {checkpoint!r}")
        super().__init__()
        self.config = config
        self.checkpoint = checkpoint
        self.keep_rng_state = keep_rng_state
        d = config.hidden_size
        self.fc = nn.Linear(config.num_taps * d, d, bias=False)
        self.hidden_norm = nn.RMSNorm(d, eps=config.rms_norm_eps)
        layers = [DrafterLayer(config) for _ in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.RMSNorm(d, eps=config.rms_norm_eps)
        self.to(config.dtype)
        self.init_weights()

        larger_unit = compilation.unit in ("layer", "drafter")
        attention = compilation.of("attention", attention)
        for layer in layers:
            layer.self_attn.attend = attention if larger_unit else inside(around_attention, attention)
        run = compilation.of("layer", compilation.of("drafter", run_layers))
        self._run = inside(around_attention, run) if larger_unit else run
        self._pieces = [layers] if compilation.unit == "drafter" else [[layer] for layer in layers]

    def forward(
        self,
        noise_embedding: Tensor,
        target_hidden: Tensor,
        position_ids: Tensor,
        block_mask: BlockMask | None = None,
    ) -> Tensor:
        """Hidden states [Bt, q, d] of the block tokens, ready for the target's `lm_head`.

        noise_embedding  [Bt, q, d]    the target's embedding of the block ids
        target_hidden    [Bt, S, K·d]  concatenated outputs of the tapped layers, as they are
        position_ids     [Bt, S + q]   of the context, then of the block tokens
        block_mask       who sees whom (`mask.dflash_block_mask`); None: every block token sees all context
                         and all block tokens, which is right for the one block of decoding
        """
        C = self.hidden_norm(self.fc(target_hidden))
        cos, sin = rotary_table(position_ids, self.config.head_dim, self.config.rope_theta, C.dtype)
        x = noise_embedding
        for layers in self._pieces:
            x = self._through(layers, x, C, cos, sin, block_mask)
        hidden: Tensor = self.norm(x)
        return hidden

    def _through(
        self,
        layers: Sequence[DrafterLayer],
        x: Tensor,
        C: Tensor,
        cos: Tensor,
        sin: Tensor,
        block_mask: BlockMask | None,
    ) -> Tensor:
        if self.checkpoint == "none" or not torch.is_grad_enabled():
            return self._run(layers, x, C, cos, sin, block_mask)
        # All by position: a reentrant checkpoint gives tensors passed by keyword no gradient, and is silent.
        reentrant = self.checkpoint == "reentrant"
        out: Tensor = checkpointed(
            self._run,
            layers,
            x,
            C,
            cos,
            sin,
            block_mask,
            use_reentrant=reentrant,
            preserve_rng_state=self.keep_rng_state,
        )
        return out

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Fresh weights: matrices normal with deviation 0.02 as in Qwen's models, norms at one.

        Give a generator of the drafter's own: the global one is rewound by compiles and recomputes elsewhere.
        """
        for parameter in self.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.02, generator=generator)


def parameters_without_gradient(module: nn.Module) -> list[str]:
    """Names of trainable parameters that have no gradient, though a backward has ended.

    Not empty means that something cut the graph, which raises nowhere: a reentrant checkpoint does so with
    tensors passed by keyword.
    """
    return [name for name, p in module.named_parameters() if p.requires_grad and p.grad is None]
