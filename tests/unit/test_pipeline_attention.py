"""Flex attention under the DFlash mask against SDPA under the dense mask; whose compiled code is whose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from drafter_support import allow_flex_backward_on_cpu
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import scaled_dot_product_attention

from harness.pipeline.attention import (
    AttentionFn,
    Compilation,
    attend,
    compiled,
    inside,
    make_attention,
    with_own_code,
)
from harness.pipeline.mask import dflash_block_mask, dflash_dense_mask

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 4, 2, 8, 4


@pytest.fixture(autouse=True)
def _flex_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_flex_backward_on_cpu(monkeypatch)


def inputs(length: int, anchors: Tensor, dtype: torch.dtype) -> list[Tensor]:
    g = torch.Generator().manual_seed(length)
    batch, queries = len(anchors), anchors.shape[1] * BLOCK
    shapes = [(HEADS, queries), (KV_HEADS, length + queries), (KV_HEADS, length + queries)]
    drawn = [torch.randn(batch, h, t, HEAD_DIM, generator=g, dtype=torch.float64).to(dtype) for h, t in shapes]
    return [t.requires_grad_() for t in drawn]


def masked_sdpa(query: Tensor, key: Tensor, value: Tensor, dense: Tensor) -> Tensor:
    """SDPA, and zeros where a query sees nothing (where SDPA itself gives NaN)."""
    some = dense.any(-1)[:, None, :, None]
    seen = (dense | ~dense.any(-1, keepdim=True))[:, None]
    out = scaled_dot_product_attention(query, key, value, attn_mask=seen, enable_gqa=True)
    return torch.where(some, out, 0.0)


def values_and_gradients(out: Tensor, of: list[Tensor]) -> list[Tensor]:
    weights = torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()
    return [out, *torch.autograd.grad((out * weights).sum(), of)]


ITEMS = {
    "small": (5, torch.tensor([[0, 2]]), torch.tensor([[1, 1]])),
    "several tiles": (150, torch.tensor([[0, 70, 149], [1, 2, 3]]), torch.tensor([[1, 1, 1], [1, 1, 0]])),
    "nothing kept": (6, torch.tensor([[0, 0]]), torch.tensor([[0, 0]])),
}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
@pytest.mark.parametrize("name", list(ITEMS))
@pytest.mark.parametrize("compile", ["none", "attention"])
def test_flex_against_sdpa(compile: str, name: str, dtype: torch.dtype, tolerance: float) -> None:
    length, anchors, keep = ITEMS[name]
    documents = (torch.arange(length) // 60).expand(len(anchors), -1)
    attention = make_attention(compile, backend="aot_eager", dynamic=False, own_code=True)  # type: ignore[arg-type]
    block_mask = dflash_block_mask(anchors, keep, length, BLOCK, document_ids=documents)
    dense = dflash_dense_mask(anchors, keep, length, BLOCK, document_ids=documents)
    qkv = inputs(length, anchors, dtype)
    got = values_and_gradients(attention(*qkv, block_mask), qkv)
    expected = values_and_gradients(masked_sdpa(*qkv, dense), qkv)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def test_a_query_that_sees_nothing_gives_zeros_and_moves_nothing() -> None:
    length, anchors, keep = ITEMS["several tiles"]
    qkv = inputs(length, anchors, torch.float64)
    out = attend(*qkv, dflash_block_mask(anchors, keep, length, BLOCK))
    assert (out[1, :, -BLOCK:] == 0).all()
    query_gradient, *others = torch.autograd.grad(out.square().sum() + out.sum(), qkv)
    assert (query_gradient[1, :, -BLOCK:] == 0).all()
    assert all(torch.isfinite(g).all() for g in (query_gradient, *others))


@pytest.mark.parametrize("compile", ["none", "attention"])
def test_without_a_mask_everything_is_seen(compile: str) -> None:
    qkv = inputs(5, torch.tensor([[0]]), torch.float64)
    attention = make_attention(compile, backend="aot_eager", own_code=True)  # type: ignore[arg-type]
    repeated = [t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in qkv[1:]]
    scores = qkv[0] @ repeated[0].transpose(-1, -2) / HEAD_DIM**0.5
    torch.testing.assert_close(attention(*qkv, None), scores.softmax(-1) @ repeated[1])


def run(attention: AttentionFn, length: int = 5) -> int:
    """Calls it with a mask and without grad; how many graphs there were compiled so far."""
    anchors = torch.tensor([[0, 2]])
    with torch.no_grad():
        attention(*inputs(length, anchors, torch.float32), dflash_block_mask(anchors, anchors + 1, length, BLOCK))
    return counters["stats"]["unique_graphs"]


def test_a_compile_call_each_shares_one_cache_and_code_of_ones_own_does_not() -> None:
    torch.compiler.reset()
    counters.clear()
    make = Compilation("attention", "eager", dynamic=False)
    assert run(make.of("attention", attend)) == 1
    assert run(make.of("attention", attend)) == 1
    own = Compilation("attention", "eager", dynamic=False, own_code=True)
    assert run(own.of("attention", attend)) == 2
    second = own.of("attention", attend)
    assert run(second) == 3
    assert run(second) == 3


def test_a_third_length_needs_no_third_graph() -> None:
    counters.clear()
    attention = make_attention(backend="eager", own_code=True)
    assert [run(attention, length) for length in (5, 7, 11)] == [1, 2, 2]


def test_a_copy_is_the_same_function_with_other_code() -> None:
    offset = 10

    def original(x: int, y: int = 2, *, z: int = 3) -> int:
        """Sum."""
        return offset + x + y + z

    first, second = with_own_code(original), with_own_code(original)
    assert first(1) == second(1) == original(1) == 16
    assert first(1, 0, z=0) == 11
    codes = {f.__code__ for f in (original, first, second)}  # a set: told apart by value, not only by identity
    assert len(codes) == 3
    assert first.__doc__ == original.__doc__
    assert first.__annotations__ == original.__annotations__


def test_only_a_function_has_code_to_copy() -> None:
    with pytest.raises(TypeError, match="only a Python function"):
        with_own_code(torch.nn.Identity())
    with pytest.raises(TypeError, match="only a Python function"):
        compiled(len, own_code=True)


def test_only_the_named_unit_is_compiled() -> None:
    assert make_attention("layer") is attend
    assert make_attention("none") is attend
    assert Compilation("layer").of("attention", attend) is attend
    assert Compilation("attention").of("attention", attend) is not attend


def test_every_call_is_inside_a_region_of_its_own() -> None:
    seen: list[str] = []

    @contextmanager
    def region() -> Iterator[None]:
        seen.append("in")
        try:
            yield
        finally:
            seen.append("out")

    def call(fail: bool) -> BlockMask | None:
        seen.append("call")
        if fail:
            raise KeyError
        return None

    wrapped = inside(region, call)
    wrapped(False)
    with pytest.raises(KeyError):
        wrapped(True)
    assert seen == ["in", "call", "out"] * 2
    assert inside(None, call) is call
