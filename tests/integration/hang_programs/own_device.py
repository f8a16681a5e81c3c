"""The device of programs about autograd's device thread: CUDA where there is one, else the harness's in host memory."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[3]))  # the program itself knows nothing of the harness

from harness.torch_internals.backends import INDUCTOR_EAGER, register_inductor_eager
from harness.torch_internals.flex_cpu import FlexCpu
from harness.torch_internals.hosted_device import register


def device_and_backend() -> tuple[str, str]:
    """For `Tensor.to` and for `torch.compile`."""
    if torch.cuda.is_available():
        return "cuda", "inductor"
    register()
    register_inductor_eager()
    FlexCpu().install()
    return "hosted", INDUCTOR_EAGER
