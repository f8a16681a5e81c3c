"""On CUDA: a compile of `flex_attention` waits for autograd's device thread, which waits for the compile lock."""

from __future__ import annotations

import threading

import torch
from running import Threads, run
from torch.nn.attention.flex_attention import flex_attention

forward_done = threading.Event()
begun = threading.Event()
attention = torch.compile(flex_attention)


@torch.compile
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def trains() -> None:
    x = torch.ones(16, device="cuda", requires_grad=True)
    y = sine(x).sum()
    forward_done.set()
    begun.wait(60)
    y.backward()  # its graph is lowered now, on the device's thread


def attends() -> None:
    q, k, v = (torch.ones(1, 1, 128, 64, device="cuda", requires_grad=True) for _ in range(3))
    forward_done.wait(60)
    begun.set()
    attention(q, k, v)


def threads() -> Threads:
    return [("trainer", trains), ("attender", attends)]


if __name__ == "__main__":
    run(threads())
