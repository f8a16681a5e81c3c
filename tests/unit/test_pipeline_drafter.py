"""The drafter against the paper's formulas written out, under every way of running it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from drafter_support import Item, allow_flex_backward_on_cpu, item, tiny
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint

from harness.core.errors import UserError
from harness.pipeline.attention import Compilation
from harness.pipeline.config import DFlashConfig
from harness.pipeline.drafter import CheckpointKind, Drafter, DrafterLayer, parameters_without_gradient
from harness.pipeline.mask import dflash_block_mask, dflash_dense_mask

CHECKPOINTS: tuple[CheckpointKind, ...] = ("none", "reentrant", "non_reentrant")


@pytest.fixture(autouse=True)
def _flex_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_flex_backward_on_cpu(monkeypatch)


def seeded(config: DFlashConfig, **options: object) -> Drafter:
    """A drafter with weights large enough for attention to be far from uniform."""
    drafter = Drafter(config, **options)  # type: ignore[arg-type]
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in drafter.parameters():
            drawn = torch.randn(p.shape, generator=g, dtype=torch.float64)
            p.copy_(1 + 0.2 * drawn if p.ndim == 1 else 0.3 * drawn)
    return drafter


def block_mask_of(config: DFlashConfig, x: Item) -> BlockMask:
    return dflash_block_mask(x.anchors, x.keep, x.length, config.block_size)


def forward(drafter: Drafter, x: Item) -> Tensor:
    out: Tensor = drafter(x.noise, x.features, x.positions, block_mask_of(drafter.config, x))
    return out


def gradients(drafter: Drafter, out: Tensor) -> dict[str, Tensor]:
    drafter.zero_grad()
    weights = torch.arange(out.numel(), dtype=out.dtype).view_as(out).sin()
    (out * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert parameters_without_gradient(drafter) == []
    return {name: p.grad.clone() for name, p in drafter.named_parameters() if p.grad is not None}


# The formulas, without a line of the package's: one sequence, one head at a time.


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).sum(-1, keepdim=True) / x.shape[-1] + eps).sqrt() * weight


def rope(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Channel i and channel i + D/2 are one complex number, turned by position · θ^(-2i/D)."""
    half = x.shape[-1] // 2
    angle = torch.einsum("t,i->ti", positions.double(), theta ** (-torch.arange(half).double() / half))
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


def one_head(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    rows = []
    for i in range(len(q)):
        which = seen[i].nonzero().flatten()
        if len(which) == 0:
            rows.append(torch.zeros_like(v[0]))
            continue
        scores = torch.einsum("d,td->t", q[i], k[which]) / q.shape[-1] ** 0.5
        weights = scores.exp() / scores.exp().sum()
        rows.append(torch.einsum("t,td->d", weights, v[which]))
    return torch.stack(rows)


def by_formula(w: dict[str, Tensor], c: DFlashConfig, noise: Tensor, H: Tensor, pos: Tensor, seen: Tensor) -> Tensor:
    eps, D, S = c.rms_norm_eps, c.head_dim, len(H)
    C = rms(torch.einsum("sk,dk->sd", H, w["fc.weight"]), w["hidden_norm.weight"], eps)
    x = noise
    for i in range(c.num_hidden_layers):

        def weight(name: str, layer: int = i) -> Tensor:
            return w[f"layers.{layer}.{name}.weight"]

        u = rms(x, weight("input_layernorm"), eps)
        both = torch.cat([C, u])
        heads = []
        for h in range(c.num_attention_heads):
            kv = h // (c.num_attention_heads // c.num_key_value_heads)
            rows, kv_rows = slice(h * D, (h + 1) * D), slice(kv * D, (kv + 1) * D)
            q = rms(u @ weight("self_attn.q_proj")[rows].T, weight("self_attn.q_norm"), eps)
            k = rms(both @ weight("self_attn.k_proj")[kv_rows].T, weight("self_attn.k_norm"), eps)
            v = both @ weight("self_attn.v_proj")[kv_rows].T
            heads.append(one_head(rope(q, pos[S:], c.rope_theta), rope(k, pos, c.rope_theta), v, seen))
        x = x + torch.cat(heads, dim=-1) @ weight("self_attn.o_proj").T
        u = rms(x, weight("post_attention_layernorm"), eps)
        gate = u @ weight("mlp.gate_proj").T
        x = x + (gate / (1 + (-gate).exp()) * (u @ weight("mlp.up_proj").T)) @ weight("mlp.down_proj").T
    return rms(x, w["norm.weight"], eps)


def reference(drafter: Drafter, x: Item, *, masked: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and parameters (whose gradients can be taken) of the formulas."""
    w = {name: p.detach().double().requires_grad_() for name, p in drafter.named_parameters()}
    seen = dflash_dense_mask(x.anchors, x.keep, x.length, drafter.config.block_size)
    seen = seen if masked else torch.ones_like(seen)
    rows = zip(x.noise.double(), x.features.double(), x.positions, seen, strict=True)
    return torch.stack([by_formula(w, drafter.config, *row) for row in rows]), w


@pytest.mark.parametrize(
    ("dtype", "tolerance", "gradient_tolerance"),
    [(torch.float64, 1e-9, 1e-6), (torch.float32, 1e-4, 1e-4)],  # flex keeps its log-sum-exp in float32
)
def test_output_and_gradients_are_the_formulas(dtype: torch.dtype, tolerance: float, gradient_tolerance: float) -> None:
    config = tiny(dtype=dtype)
    drafter, x = seeded(config), item(config)
    out = forward(drafter, x)
    expected, weights = reference(drafter, x)
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    got = gradients(drafter, out)
    factor = torch.arange(expected.numel()).view_as(expected).sin()
    theirs = torch.autograd.grad((expected * factor).sum(), list(weights.values()))
    for name, gradient in zip(weights, theirs, strict=True):
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(got[name].double(), gradient, rtol=0, atol=gradient_tolerance * scale, msg=name)


def test_without_a_mask_all_is_seen() -> None:
    config = tiny()
    drafter, x = seeded(config), item(config)
    out = drafter(x.noise, x.features, x.positions)
    torch.testing.assert_close(out, reference(drafter, x, masked=False)[0])


def test_one_block_alone_comes_out_as_it_does_among_others() -> None:
    """Training runs many blocks against one context; decoding runs one, without a mask."""
    config = tiny()
    drafter, x = seeded(config), item(config, length=12)
    together = forward(drafter, x)[0]
    B = config.block_size
    for n, anchor in enumerate(x.anchors[0].tolist()):
        if anchor == 0:
            continue
        positions = torch.arange(anchor + B)[None]
        alone = drafter(x.noise[:1, n * B : (n + 1) * B], x.features[:1, :anchor], positions)
        torch.testing.assert_close(alone[0], together[n * B : (n + 1) * B])


def test_parameters_are_named_as_in_public_checkpoints() -> None:
    layer = [
        *(f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")),
        *(f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")),
        "input_layernorm",
        "post_attention_layernorm",
    ]
    names = ["fc", "hidden_norm", "norm", *(f"layers.{i}.{name}" for i in range(2) for name in layer)]
    assert set(Drafter(tiny()).state_dict()) == {f"{name}.weight" for name in names}


@pytest.mark.parametrize("kind", CHECKPOINTS)
@pytest.mark.parametrize("unit", ["none", "attention"])
def test_every_checkpoint_gives_every_parameter_the_same_gradient(kind: CheckpointKind, unit: str) -> None:
    config = tiny()
    x = item(config)
    plain = seeded(config)
    expected = gradients(plain, forward(plain, x))
    drafter = seeded(
        config,
        checkpoint=kind,
        compilation=Compilation(unit, "aot_eager", dynamic=False, own_code=True),  # type: ignore[arg-type]
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="None of the inputs have requires_grad")
        got = gradients(drafter, forward(drafter, x))
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, msg=name)


@pytest.mark.parametrize("unit", ["layer", "drafter"])
def test_a_larger_unit_compiles_to_the_same(unit: str) -> None:
    config = tiny(num_hidden_layers=1)
    x = item(config)
    plain = seeded(config)
    expected = gradients(plain, forward(plain, x))
    entered: list[bool] = []

    @contextmanager
    def region() -> Iterator[None]:
        entered.append(torch.compiler.is_compiling())
        yield

    counters.clear()
    drafter = seeded(
        config,
        checkpoint="non_reentrant",
        compilation=Compilation(unit, "aot_eager", dynamic=False, own_code=True),  # type: ignore[arg-type]
        around_attention=region,
    )
    for calls in (2, 4):  # the second time all comes from the cache, and the region is entered as before
        got = gradients(drafter, forward(drafter, x))
        assert entered == [False] * calls  # the forward and its recompute
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, msg=name)


class Keywords(Drafter):
    """As checkpoints are often written: the context does not come by position."""

    def _through(
        self,
        layers: Sequence[DrafterLayer],
        x: Tensor,
        C: Tensor,
        cos: Tensor,
        sin: Tensor,
        block_mask: BlockMask | None,
    ) -> Tensor:
        run = partial(self._run, layers, C=C, cos=cos, sin=sin, block_mask=block_mask)
        out: Tensor = checkpoint(run, x, use_reentrant=self.checkpoint == "reentrant")
        return out


@pytest.mark.parametrize(
    ("kind", "missing"), [("non_reentrant", set()), ("reentrant", {"fc.weight", "hidden_norm.weight", "layers"})]
)
def test_the_keyword_trap_is_silent_and_is_noticed(kind: CheckpointKind, missing: set[str]) -> None:
    config = tiny()
    x = item(config)
    drafter = Keywords(config, checkpoint=kind)
    forward(drafter, x).sum().backward()  # type: ignore[no-untyped-call]
    names = parameters_without_gradient(drafter)
    assert {"layers" if name.startswith("layers.") else name for name in names} == missing
    assert len(names) == (0 if kind == "non_reentrant" else len(drafter.state_dict()) - 1)  # all but the last norm


def test_frozen_parameters_are_not_reported() -> None:
    drafter = Drafter(tiny())
    drafter.requires_grad_(False)
    drafter.norm.requires_grad_(True)
    assert parameters_without_gradient(drafter) == ["norm.weight"]


@pytest.mark.parametrize(
    ("kind", "grad"),
    [
        ("none", [True, True]),
        ("reentrant", [False, False, True, True]),  # its forward runs without grad
        ("non_reentrant", [True, True, True, True]),
    ],
)
def test_the_region_is_the_workers_on_whatever_thread_the_recompute_runs(
    kind: CheckpointKind, grad: list[bool]
) -> None:
    entered: list[tuple[str, int, bool]] = []
    left: list[str] = []

    @contextmanager
    def region(worker: str) -> Iterator[None]:
        entered.append((worker, threading.get_ident(), torch.is_grad_enabled()))
        yield
        left.append(worker)

    config = tiny()
    drafter = seeded(config, checkpoint=kind, around_attention=lambda: region("drafter-1"))
    loss = forward(drafter, item(config)).sum()
    backward = threading.Thread(target=loss.backward)  # on the CPU a backward runs where it is called
    backward.start()
    backward.join(60)
    assert not backward.is_alive()
    workers, threads, grad_modes = zip(*entered, strict=True)
    assert list(workers) == left == ["drafter-1"] * len(grad)
    here = threading.get_ident()
    assert [thread == here for thread in threads] == [True, True, False, False][: len(grad)]
    assert list(grad_modes) == grad


@pytest.mark.parametrize(("unit", "calls"), [("none", 2), ("attention", 2), ("layer", 2), ("drafter", 1)])
def test_the_region_is_entered_once_a_call_of_the_compiled_unit(unit: str, calls: int) -> None:
    entered: list[bool] = []

    @contextmanager
    def region() -> Iterator[None]:
        entered.append(torch.compiler.is_compiling())
        yield

    config = tiny()
    compilation = Compilation(unit, "eager", dynamic=False, own_code=True)  # type: ignore[arg-type]
    drafter = seeded(config, compilation=compilation, around_attention=region)
    with torch.no_grad():
        forward(drafter, item(config))
    assert entered == [False] * calls


def test_an_error_in_attention_leaves_the_region_and_is_raised() -> None:
    left: list[str] = []

    @contextmanager
    def region() -> Iterator[None]:
        try:
            yield
        finally:
            left.append("out")

    def broken(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None) -> Tensor:
        raise RuntimeError("no attention today")

    config = tiny()
    drafter = Drafter(config, attention=broken, around_attention=region)
    with pytest.raises(RuntimeError, match="no attention today"):
        forward(drafter, item(config))
    assert left == ["out"]


def test_an_unkept_block_is_finite_and_moves_nothing_else() -> None:
    """Gradients are those of the item without that block."""
    config = tiny()
    drafter, x = seeded(config, checkpoint="non_reentrant"), item(config, batch=1)
    out = forward(drafter, x)
    kept = x.keep.repeat_interleave(config.block_size, dim=1)
    assert torch.isfinite(out).all()
    got = gradients(drafter, out * kept[..., None])
    B, S = config.block_size, x.length
    shorter = Item(x.noise[:, :-B], x.features, x.positions[:, :-B], x.anchors[:, :-1], x.keep[:, :-1], S)
    expected = gradients(drafter, forward(drafter, shorter))
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, msg=name)


def test_nothing_is_recomputed_without_grad() -> None:
    config = tiny()
    x = item(config)
    drafter = seeded(config, checkpoint="reentrant")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="None of the inputs")
        assert not forward(drafter, x).requires_grad


def test_weights_come_from_the_given_generator_alone() -> None:
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        drafter = Drafter(tiny())
        drafter.init_weights(torch.Generator().manual_seed(5))
        states.append(drafter.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert states[0]["fc.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert (states[0]["norm.weight"] == 1).all()


def test_an_unknown_checkpoint_kind_is_refused() -> None:
    with pytest.raises(UserError, match="none, reentrant, non_reentrant"):
        Drafter(tiny(), checkpoint="always")  # type: ignore[arg-type]
