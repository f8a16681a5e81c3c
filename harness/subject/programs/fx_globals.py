"""Small programs in which an FX trace, or the graph capture of a compile, meets code of another thread that is not compiled
at all: through the patched `nn.Module`, and through the dictionary of node annotations. All on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, symbolic_trace
from torch.nn.attention.flex_attention import create_block_mask
from torch.overrides import TorchFunctionMode

from .parts import Parts


class TwoLayers(nn.Module):
    """What is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(…, 2) → (…, 2)"""
        y: Tensor = self.inner(x)
        return y * 2


class ModuleCall(Parts):
    """`tracer` runs `symbolic_trace` on its module; `caller` calls a module of its own, compiled nowhere."""

    def build(self) -> None:
        """Two modules that have nothing to do with each other."""
        self._traced = TwoLayers()
        self._other: nn.Module = nn.ReLU()

    def parts(self) -> Mapping[str, Callable[[], object]]:
        """One trace, one call."""
        return {"tracer": self.trace, "caller": self.call}

    def trace(self) -> GraphModule:
        """The trace."""
        return symbolic_trace(self._traced)

    def call(self) -> None:
        """The call, between two marks."""
        self.ctx.mark("caller", "calling")
        self._other(torch.ones(2))
        self.ctx.mark("caller", "called")


class SharedModuleCall(ModuleCall):
    """As `ModuleCall`, but the module that is called belongs to the traced one (replicas often share one): no error. Fact
    `effect`: the traced graph has the other thread's call in it."""

    def build(self) -> None:
        """The module and a part of it."""
        super().build()
        self._other = self._traced.inner

    def trace(self) -> GraphModule:
        """The trace, and a look at its graph: the module calls its part once."""
        graph_module = super().trace()
        calls = sum(node.op == "call_module" for node in graph_module.graph.nodes)
        self.ctx.fact("", "module_calls", calls)
        self.ctx.fact("", "effect", calls != 1)
        return graph_module


class AtSort(TorchFunctionMode):
    """Marks at both ends of `torch.argsort`, the one operation that `create_block_mask` annotates."""

    def __init__(self, mark: Callable[[str], None]) -> None:
        super().__init__()
        self._mark = mark

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        sorting = func is torch.argsort
        if sorting:
            self._mark("sorting")
        result = func(*args, **(kwargs or {}))
        if sorting:
            self._mark("sorted")
        return result


class MaskBuilding(Parts):
    """`compiler` compiles a function; `masker` builds a block mask with plain `create_block_mask`."""

    def build(self) -> None:
        """Compiles at the first call."""
        self._compiled = torch.compile(lambda x: x * 2, backend="aot_eager")

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One compile, one mask."""
        return {"compiler": self._compile, "masker": self._build_mask}

    def _compile(self) -> None:
        self._compiled(torch.ones(2, requires_grad=True))

    def _build_mask(self) -> None:
        self.ctx.mark("masker", "begin")
        with AtSort(lambda name: self.ctx.mark("masker", name)):
            create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, device="cpu", BLOCK_SIZE=8)
