"""Further runs of a reference on CUDA start from weights that are off by one rounding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_control_references import Fake, request

from harness.control.references import FURTHER, References
from harness.pipeline.optimizer import DrafterOptimizer
from harness.subject.nudging import nudge

DTYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_weight_becomes_the_next_number_of_its_dtype(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    before = torch.cat([torch.randn(5000, generator=draw), 2.0 ** torch.arange(-20, 20)]).to(dtype)
    after = before.clone()
    nudge([after], seed=1)
    below, above = (torch.nextafter(before, torch.full_like(before, sign * torch.inf)) for sign in (-1, 1))
    assert bool(((after == below) | (after == above)).all())
    assert 0.45 < (after == above).double().mean() < 0.55


def test_what_has_no_next_number_stays_as_it_is() -> None:
    whole, zero = torch.arange(4), torch.zeros(4)
    nudge([whole, zero], seed=1)
    assert whole.tolist() == [0, 1, 2, 3]
    assert zero.tolist() == [0.0] * 4


def test_a_seed_says_which_way() -> None:
    one, same, other = (torch.ones(1000, dtype=torch.bfloat16) for _ in range(3))
    for weights, seed in ((one, 1), (same, 1), (other, 2)):
        nudge([weights], seed)
    assert torch.equal(one, same)
    assert 0.4 < (one == other).double().mean() < 0.6


def test_a_weight_that_two_drafters_share_is_moved_once_and_the_drafters_stay_alike() -> None:
    shared, own, alike = torch.ones(1000), torch.ones(1000), torch.ones(1000)
    moved: dict[int, torch.Tensor] = {}
    nudge([shared, own, shared], 1, moved)
    nudge([shared, alike], 1, moved)
    eps = torch.finfo(torch.float32).eps
    assert {*shared.tolist()} == {1 - eps / 2, 1 + eps}
    assert torch.equal(own, alike)


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float64])
def test_the_default_dtype_changes_nothing(default: torch.dtype) -> None:
    """A workload may have set it: a step of half a unit in float16 would be none in float64."""
    expected, found = [[torch.ones(1000, dtype=dtype) for dtype in DTYPES] for _ in range(2)]
    nudge(expected, seed=1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        nudge(found, seed=1)
    finally:
        torch.set_default_dtype(before)
    assert all(map(torch.equal, expected, found))


def test_training_goes_on_from_the_nudged_weights() -> None:
    """The float32 copies that AdamW trains are made with the optimizer, before."""
    parameter = torch.nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
    optimizer = DrafterOptimizer([parameter], learning_rate=0.0, weight_decay=0.0, clip=1.0, total_steps=2, warmup_steps=0)
    nudge([parameter], seed=1)
    nudged = parameter.detach().clone()
    optimizer.restart()
    parameter.grad = torch.ones_like(parameter)
    optimizer.step(0)
    assert torch.equal(parameter, nudged)


@pytest.mark.parametrize(("devices", "nudged"), [("cpu", [None] * 4), ("cuda:0", [None, 1, 2, 3])])
def test_only_further_runs_on_cuda_are_nudged(tmp_path: Path, devices: str, nudged: list[int | None]) -> None:
    """On the CPU runs that agree to the bit say that a trial which does not is wrong."""
    executor, references = Fake(), References(tmp_path, "float32")
    trial = request(tmp_path, devices=devices)
    key = references.key_of(trial)
    references.prepare({key + more: trial for more in ("", *FURTHER)}, executor)
    assert [ran.extra.get("nudged") for ran in executor.ran] == nudged
