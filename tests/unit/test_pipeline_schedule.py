"""The learning rate, and the optimizer that follows it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from harness.pipeline.optimizer import DrafterOptimizer
from harness.pipeline.schedule import cosine_with_warmup, warmup_steps


def test_the_recipe_written_out() -> None:
    """100 steps, 4 % warm-up: up in four steps, half way down in the middle of the rest."""
    factors = [cosine_with_warmup(s, total=100, warmup=warmup_steps(100, 0.04)) for s in range(101)]
    assert factors[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factors[52] == pytest.approx(0.5)
    assert factors[99] == pytest.approx(0.5 * (1 + math.cos(math.pi * 95 / 96)))
    assert factors[99] > 0
    assert factors[100] == 0.0


@pytest.mark.parametrize(("total", "ratio", "steps"), [(6, 0.04, 1), (100, 0.0, 0), (10, 1.0, 10), (1, 0.5, 1)])
def test_warmup_steps(total: int, ratio: float, steps: int) -> None:
    assert warmup_steps(total, ratio) == steps


@given(st.integers(1, 500), st.floats(0, 1))
def test_up_then_down_and_never_nothing(total: int, ratio: float) -> None:
    warmup = warmup_steps(total, ratio)
    factors = [cosine_with_warmup(s, total=total, warmup=warmup) for s in range(total)]
    assert all(0 < factor <= 1 for factor in factors)
    assert factors[:warmup] == sorted(factors[:warmup])
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)


@pytest.mark.parametrize("bad", [{"step": -1, "total": 5, "warmup": 1}, {"step": 0, "total": 0, "warmup": 0}])
def test_what_is_no_schedule(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no such schedule"):
        cosine_with_warmup(**bad)


def optimizer(parameter: nn.Parameter, **other: float) -> DrafterOptimizer:
    settings = {"learning_rate": 0.1, "weight_decay": 0.0, "clip": 1.0, "total_steps": 10, "warmup_steps": 0, **other}
    return DrafterOptimizer([parameter], **settings)  # type: ignore[arg-type]


def test_the_first_step_of_adamw_by_hand() -> None:
    """AdamW's first step moves each weight by the learning rate against the sign of its gradient."""
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    parameter.grad = torch.tensor([0.3, -0.4])
    norm = optimizer(parameter).step(0)
    assert norm == pytest.approx(0.5)
    assert parameter.detach().tolist() == pytest.approx([0.9, -1.9], abs=1e-5)
    assert parameter.grad is None


def test_each_step_has_the_rate_of_its_number() -> None:
    parameter = nn.Parameter(torch.tensor([0.0]))
    tuned = optimizer(parameter, warmup_steps=2)
    parameter.grad = torch.tensor([1.0])
    tuned.step(0)
    assert parameter.item() == pytest.approx(-0.05, abs=1e-5)


def test_gradients_are_clipped_to_the_norm() -> None:
    """Two steps: the second's size depends on the ratio of the gradients, so on whether the first was clipped."""

    def after_two(first: float) -> float:
        parameter = nn.Parameter(torch.tensor([0.0]))
        tuned = optimizer(parameter)
        for gradient in (first, 1.0):
            parameter.grad = torch.tensor([gradient])
            tuned.step(0)
        return parameter.item()

    assert after_two(1000.0) == pytest.approx(after_two(1.0), abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_updates_of_a_narrow_model_add_up(dtype: torch.dtype) -> None:
    """Ten updates of 0.0005 move a bfloat16 weight of 1 only because they are gathered in float32."""
    parameter = nn.Parameter(torch.ones(1, dtype=dtype))
    tuned = optimizer(parameter, learning_rate=5e-4)
    for _ in range(10):
        parameter.grad = torch.full((1,), 0.5, dtype=dtype)
        tuned.step(0)
    assert parameter.dtype == dtype
    assert parameter.item() == pytest.approx(0.995, abs=3e-3)
    assert parameter.grad is None


def test_a_parameter_without_gradient_stays() -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer(parameter, weight_decay=0.5).step(0)
    assert parameter.item() == 1.0


ON_CUDA = (
    pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("fused", "device"), [(False, "cpu"), (True, "cpu"), pytest.param(None, "cuda", marks=ON_CUDA)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("clip", [0.5, 1e6])
def test_steps_are_torchs_clipped_adamw_on_masters_of_any_weights(
    dtype: torch.dtype, clip: float, fused: bool | None, device: str
) -> None:
    """Against `clip_grad_norm_` and AdamW on float32 copies; one parameter has no gradient."""
    g = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(7, 3, generator=g).to(device, dtype)) for _ in range(3)]
    copies = [nn.Parameter(p.detach().float().clone()) for p in parameters]
    reference = torch.optim.AdamW(copies, lr=0.1, betas=(0.9, 0.95), weight_decay=0.01, foreach=False)
    tuned = DrafterOptimizer(
        parameters, learning_rate=0.1, weight_decay=0.01, clip=clip, total_steps=10, warmup_steps=0, fused=fused
    )
    untouched = parameters[2].detach().clone()
    for size in (3.0, 0.1):  # the second moments show whether the first was clipped
        for copy, parameter in zip(copies[:2], parameters, strict=False):
            parameter.grad = (size * torch.randn(7, 3, generator=g)).to(device, dtype)
            copy.grad = parameter.grad.float().clone()
        expected = nn.utils.clip_grad_norm_(copies, clip)
        reference.step()
        torch.testing.assert_close(tuned.step(0), expected)
        for master, parameter, copy in zip(tuned._masters, parameters, copies, strict=True):
            torch.testing.assert_close(master.detach(), copy.detach())
            assert parameter.dtype == dtype
            assert torch.equal(parameter.detach(), master.detach().to(dtype))
            assert parameter.grad is None
            assert master.grad is None
        for master, copy in zip(tuned._masters[:2], copies, strict=False):  # AdamW's step forgets a factor, its state does not
            torch.testing.assert_close(tuned._adamw.state[master]["exp_avg"], reference.state[copy]["exp_avg"])
    assert torch.equal(parameters[2].detach(), untouched)
