"""The device in host memory: what is computed on it, on which thread, and that torch has only one such device.

In a process of its own, for a registered device stays, and torch's accelerator is then that one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from harness.torch_internals.hosted_device import register

CHECKS = """
import json, threading
from pathlib import Path
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint
from harness.torch_internals.backends import INDUCTOR_EAGER, register_inductor_eager
from harness.torch_internals.flex_cpu import FlexCpu
from harness.torch_internals.hosted_device import register

told = {"first": register().reason, "again": register().reason}
register_inductor_eager()
register_inductor_eager()
FlexCpu().install()

def trained(device, backend, reentrant):
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = [torch.randn(1, 2, 128, 16).to(device).requires_grad_() for _ in range(3)]
    attention = torch.compile(flex_attention, backend=backend)
    out = attention(*given) if reentrant is None else checkpoint(attention, *given, use_reentrant=reentrant)
    (out * out).sum().backward()
    return [out.detach().cpu(), *(tensor.grad.cpu() for tensor in given)]

expected = trained("cpu", "aot_eager", None)
told["same"] = {
    str(reentrant): [torch.equal(a, b) for a, b in zip(expected, trained("hosted", INDUCTOR_EAGER, reentrant))]
    for reentrant in (None, False, True)
}

def on_thread(gradient):
    ident = threading.get_native_id()
    told["backward on"] = Path(f"/proc/self/task/{ident}/comm").read_text().strip(), ident == threading.main_thread().native_id

x = torch.ones(4).to("hosted").requires_grad_()
y = x * 2
y.register_hook(on_thread)
y.sum().backward()
def written(device):
    made = torch.zeros(4, 3).to(device)
    made[1:3] = 1
    made[:, 2].add_(5)
    made.t()[0] = 7
    made.view(12)[11] = 9
    made.view(2, 6).unfold(1, 2, 2)[0, 0, 0] = -1
    made.permute(1, 0).unsqueeze(0).select(1, 1).mul_(2)
    for row in made.unbind():
        row[1:].sub_(1)
    made.split(2)[1].diagonal().fill_(3)
    made.detach()[0, 1] = 8
    return made.cpu()

told["written"] = torch.equal(written("cpu"), written("hosted"))
made = {
    "arange": torch.arange(5, device="hosted").cpu().tolist(),
    "view": torch.arange(6, device="hosted").view(2, 3).t().cpu().tolist(),
    "slice": torch.arange(6, device="hosted")[2:4].cpu().tolist(),
    "expand": torch.ones(1, 2, device="hosted").expand(2, 2).sum(0).cpu().tolist(),
    "in place": torch.ones(2, device="hosted").add_(1).mul_(3).cpu().tolist(),
    "product": (torch.ones(2, 3, device="hosted") @ torch.ones(3, 2, device="hosted")).cpu().tolist(),
}
import traceback
class Refused(RuntimeError):
    pass

def fails_in_its_recompute(x):
    fails_in_its_recompute.calls += 1
    if fails_in_its_recompute.calls == 2:
        raise Refused("in the recompute")
    return (x * 2).sin().exp()

def raised(reentrant, nested=False):
    fails_in_its_recompute.calls = 0
    x = torch.ones(3).to("hosted").requires_grad_()
    try:
        y = checkpoint(fails_in_its_recompute, x, use_reentrant=reentrant).sum()
        torch.autograd.grad(y, x) if nested else y.backward()
    except Refused as error:
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        return str(error), "fails_in_its_recompute" in frames, error.__context__ is None, error.__cause__ is None
    return "nothing was raised"

told["raised"] = [raised(False), raised(True), raised(False, nested=True)]
def given_back(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: "no tensor"):
        y = (x * 2).exp()
    y.sum().backward()
try:
    given_back(torch.ones(3).to("hosted").requires_grad_())
except TypeError as error:
    told["theirs"] = str(error)
x = torch.ones(3).to("hosted").requires_grad_()
checkpoint(lambda x: (x * 2).exp(), x, use_reentrant=False).sum().backward()
told["after"] = torch.allclose(x.grad.cpu(), 2 * torch.full((3,), 2.0).exp())
print(json.dumps({**told, "made": made}))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", CHECKS], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_it_is_registered_once(told: dict[str, Any]) -> None:
    assert (told["first"], told["again"]) == ("", "")


@pytest.mark.parametrize("checkpoint", ["None", "False", "True"])
def test_attention_and_its_gradients_are_those_of_the_cpu_to_the_bit(told: dict[str, Any], checkpoint: str) -> None:
    assert told["same"][checkpoint] == [True] * 4


def test_a_backward_runs_on_a_thread_of_the_device(told: dict[str, Any]) -> None:
    name, is_main = told["backward on"]
    assert name.startswith("pt_autograd_")
    assert not is_main


def test_what_a_recompute_raises_comes_out_of_backward_and_aborts_nothing(told: dict[str, Any]) -> None:
    """Torch's guard of such a device ends the process where a saved tensor's hook raises on the device's thread."""
    assert told["raised"] == [["in the recompute", True, True, True]] * 3
    assert "expected to be a Tensor" in told["theirs"], "a hook that gives back no tensor is told of as ever"
    assert told["after"]


def test_operators_and_views_are_the_cpu_s(told: dict[str, Any]) -> None:
    assert told["made"] == {
        "arange": [0, 1, 2, 3, 4],
        "view": [[0, 3], [1, 4], [2, 5]],
        "slice": [2, 3],
        "expand": [2.0, 2.0],
        "in place": [6.0, 6.0],
        "product": [[3.0, 3.0], [3.0, 3.0]],
    }


def test_what_is_written_to_a_view_is_written_to_its_tensor(told: dict[str, Any]) -> None:
    assert told["written"]


def test_where_another_device_was_registered_it_says_so() -> None:
    program = textwrap.dedent(
        """
        import torch
        torch.utils.rename_privateuse1_backend("theirs")
        from harness.torch_internals.hosted_device import register
        print(register().reason)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == 'torch has one device registered from outside, and it is "theirs" already\n', done.stderr


def test_a_torch_without_the_name_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.utils.backend_registration as registration

    monkeypatch.delattr(registration, "_setup_privateuseone_for_python_backend")
    found = register()
    assert not found.ok
    assert "_setup_privateuseone_for_python_backend" in found.reason
