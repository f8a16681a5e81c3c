"""A lock around the step, taken again in what a checkpoint runs twice: the second time on autograd's device thread."""

from __future__ import annotations

import threading

import torch
from own_device import device_and_backend
from running import Threads, run
from torch.utils.checkpoint import checkpoint

DEVICE, _ = device_and_backend()
torch_lock = threading.RLock()  # one thread may take it twice, and autograd's is another


def attend(x: torch.Tensor) -> torch.Tensor:
    with torch_lock:
        return x.sin()


def trains() -> None:
    x = torch.ones(16).to(DEVICE).requires_grad_()
    with torch_lock:
        y = checkpoint(attend, x, use_reentrant=False)
        y.sum().backward()


def threads() -> Threads:
    return [("drafter", trains)]


if __name__ == "__main__":
    run(threads())
