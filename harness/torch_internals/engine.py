"""Who is inside the autograd engine, and which graph an engine thread works for.

Private names: `_engine_run_backward` as bound in `torch.autograd.graph` and `torch.autograd` (the one entry
of `Tensor.backward`, `torch.autograd.backward`, `torch.autograd.grad` and of a reentrant checkpoint's
recompute), and `torch._C._current_graph_task_id`. Verified on torch 2.11, 2.12.1, 2.13 and 2.14.1. A
missing name: unavailable.

The calling thread waits in the engine while device threads run the graph (on the CPU it runs the graph
itself). Neither `threading.local` nor context variables reach a device thread, but every thread that works
for a graph sees the graph's task id: `tag_graph` tells a worker's name to them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet

_NAME = "_engine_run_backward"
_autograd: Any = torch.autograd
_NO_TASK = -1


class EngineSink(Protocol):
    def engine_enter(self, roots: Sequence[Any]) -> None:
        """`roots`: the tensors (or gradient edges) that backward starts from; keep no reference to them."""

    def engine_exit(self) -> None: ...


def graph_task_id() -> int:
    """The id of the graph that this thread works for in the engine, or -1 outside. Ids are not used twice."""
    return int(torch._C._current_graph_task_id())


def current_device() -> str:
    """The CUDA device of this thread; "" where CUDA is not in use, or has one device, of which nothing is to be told apart."""
    cuda: Any = torch.cuda
    return f"cuda:{cuda.current_device()}" if cuda.is_initialized() and cuda.device_count() > 1 else ""


def tag_graph(root: Any, callback: Callable[[int], None]) -> Callable[[], None]:
    """Calls `callback(task id)` on the engine's thread when backward reaches the node of `root`, before it
    runs.

    `root` is a tensor that requires grad, a gradient edge or a node; as a root of backward its node is the
    first to run. Returns a function that removes the hook. ValueError: `root` has no gradient.
    """
    node = _node(root)
    call = quiet(callback)

    def prehook(_grads: object) -> None:
        call(graph_task_id())

    handle = node.register_prehook(hide(prehook))
    return lambda: handle.remove()


def _node(root: Any) -> Any:
    if isinstance(root, torch.autograd.graph.Node):
        return root
    if isinstance(root, torch.autograd.graph.GradientEdge):
        return root.node
    if not isinstance(root, torch.Tensor) or not root.requires_grad:
        raise ValueError(f"{type(root).__name__} without gradient: it has no node that backward could reach")
    return torch.autograd.graph.get_gradient_edge(root).node


class Engine:
    """Calls an `EngineSink` around every run of the engine, on the thread that asked for it."""

    name = "engine"

    def __init__(self) -> None:
        self._patches = Patches()
        self._enter: Callable[..., None] = nothing
        self._exit: Callable[..., None] = nothing

    def install(self, sink: EngineSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        if not hasattr(_autograd.graph, _NAME):
            return missing("torch.autograd.graph", _NAME)
        original: Callable[..., Any] = getattr(_autograd.graph, _NAME)
        if getattr(_autograd, _NAME, None) is not original:
            return missing("torch.autograd", _NAME)
        if not hasattr(torch._C, "_current_graph_task_id"):
            return missing("torch._C", "_current_graph_task_id")

        @functools.wraps(original)
        def _engine_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
            self._enter(t_outputs)
            try:
                return original(t_outputs, *args, **kwargs)
            finally:
                self._exit()

        self._enter, self._exit = quiet(sink.engine_enter), quiet(sink.engine_exit)
        hide(_engine_run_backward)
        self._patches.set(_autograd.graph, _NAME, _engine_run_backward)
        self._patches.set(_autograd, _NAME, _engine_run_backward)
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._enter = self._exit = nothing
