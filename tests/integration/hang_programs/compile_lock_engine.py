"""A compile of `flex_attention` waits for autograd's device thread, which waits for the compile lock."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import torch
from own_device import device_and_backend
from running import Threads, run
from torch.nn.attention.flex_attention import flex_attention

DEVICE, BACKEND = device_and_backend()
engine_busy = threading.Event()
lock_held = threading.Event()
attention = torch.compile(flex_attention, backend=BACKEND)
operator: Any = importlib.import_module("torch._higher_order_ops.flex_attention")
joint = operator.create_fw_bw_graph


@torch.compile(backend=BACKEND)
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def in_backward(_gradient: torch.Tensor) -> None:
    engine_busy.set()
    lock_held.wait(240)


def in_compile(*args: Any, **kwargs: Any) -> Any:
    lock_held.set()
    return joint(*args, **kwargs)


def trains() -> None:
    x = torch.ones(16).to(DEVICE).requires_grad_()
    y = sine(x)
    y.register_hook(in_backward)
    operator.create_fw_bw_graph = in_compile
    y.sum().backward()  # the graph of `sine` is lowered now, on the device's thread


def attends() -> None:
    engine_busy.wait(240)
    q, k, v = (torch.ones(1, 1, 128, 64).to(DEVICE).requires_grad_() for _ in range(3))
    attention(q, k, v)


def threads() -> Threads:
    return [("trainer", trains), ("attender", attends)]


if __name__ == "__main__":
    run(threads())
