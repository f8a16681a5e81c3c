"""Each thing that a watch looks for, made to happen by events: no part of it is left to chance.

Prints what it saw itself, as JSON.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

import harness

WAIT_S = 60.0
said: dict[str, Any] = {"torch": str(torch.__version__)}


def on_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    return thread


def void(_: object) -> None:
    """Ends an expression."""


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def refused() -> None:
    """A compiled call while another thread is inside a trace."""
    compiled = torch.compile(double, backend="eager", dynamic=False)
    compiled(torch.ones(2))
    compiled(torch.ones(3))  # again, for another size
    inside, leave = threading.Event(), threading.Event()

    def traced(x: torch.Tensor) -> torch.Tensor:
        inside.set()
        leave.wait(WAIT_S)
        return x + 1

    tracer = on_thread("tracer", lambda: void(torch.fx.symbolic_trace(traced)))
    assert inside.wait(WAIT_S)
    try:
        with harness.region("forward", "trainer"):
            compiled(torch.ones(2))
        said["refused"] = False
    except RuntimeError:
        said["refused"] = True
    leave.set()
    tracer.join(WAIT_S)


def rewound() -> None:
    """Another thread draws while a backend compiles."""

    def draw() -> None:
        torch.rand(1)

    def backend(graph: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        on_thread("drawer", draw).join(WAIT_S)
        return graph.forward

    torch.compile(lambda x: x + 3, backend=backend)(torch.ones(2))


def settings() -> None:
    """Another limit in the main thread than in the one that compiles."""
    torch._dynamo.config.recompile_limit = 64
    compiled = torch.compile(lambda x: x - 1, backend="eager")
    on_thread("worker", lambda: void(compiled(torch.ones(2)))).join(WAIT_S)


def dense() -> None:
    """Attention outside of compiled code."""
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 1, 16, 16)
    flex_attention(q, q, q)


def steps() -> None:
    """A trainer of its own."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(5):
        with harness.region("step"):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()


def patched() -> None:
    """Replaces parts of torch, as programs do; they must be found as they were."""
    backward = torch.Tensor.backward
    torch.Tensor.backward = lambda self, *args, **kwargs: backward(self, *args, **kwargs)  # type: ignore[method-assign]
    torch.ones(1, requires_grad=True).sum().backward()
    torch.Tensor.backward = backward  # type: ignore[method-assign]
    compiler = torch.compile
    torch.compile = lambda *args, **kwargs: compiler(*args, **kwargs)  # type: ignore[assignment]
    torch.compile(double, backend="eager")(torch.ones(2))


for part in (refused, rewound, settings, dense, steps, patched):
    part()
print(json.dumps(said), flush=True)
