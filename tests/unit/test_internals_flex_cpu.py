from __future__ import annotations

import importlib

import pytest
import torch
import torch._dynamo
from internals_support import clean_dynamo, installed, qkv
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from harness.torch_internals.flex_cpu import FlexCpu, flex_on_cpu

pytestmark = [
    pytest.mark.usefixtures("clean_dynamo"),
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
]
__all__ = ["clean_dynamo"]


def test_without_it_torch_refuses() -> None:
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(*qkv())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_forward_and_gradients_equal_plain_attention(backend: str) -> None:
    inputs = qkv()
    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, None, 16, 16, device="cpu")
    with flex_on_cpu() as availability:
        assert availability.ok
        out = torch.compile(flex_attention, backend=backend)(*inputs, block_mask=mask)
        gradients = torch.autograd.grad(out.square().sum(), inputs)
    expected = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected.square().sum(), inputs))


def test_other_devices_are_checked_as_before() -> None:
    with flex_on_cpu(), pytest.raises(ValueError, match="only supported on CUDA"):
        flex_attention(*(x.to("meta") for x in qkv()))


def test_it_ends_with_the_block() -> None:
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    before = flex._validate_device
    with pytest.raises(KeyError), flex_on_cpu():
        raise KeyError
    assert flex._validate_device is before
    with installed(FlexCpu()):
        flex_attention(*qkv())
    with pytest.raises(NotImplementedError):
        flex_attention(*qkv())


def test_a_torch_without_the_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(importlib.import_module("torch.nn.attention.flex_attention"), "_validate_device")
    with flex_on_cpu() as availability:
        assert "_validate_device" in availability.reason
