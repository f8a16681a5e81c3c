"""Small programs that compile more, or count less, than one would think. All on the CPU."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from harness.core.workload import Worker
from harness.torch_internals.backends import on_compile_start

from .parts import Parts
from .shown import Shown


def double(x: Tensor) -> Tensor:
    """What is compiled."""
    return x * 2


def triple(x: Tensor) -> Tensor:
    """Another code object."""
    return x * 3


class Counted:
    """A backend that runs the graph as it is and counts what it is given; equal to every other of its kind.

    `compared`, where given, is called each time that two are compared: a lookup in a code object's cache does so with each
    entry, before it looks at the entry's guards (`torch.compile` compares the wrappers that it makes of backends).
    """

    def __init__(self, compared: Callable[[], None] = lambda: None) -> None:
        self.graphs = 0
        self._compared = compared

    def __call__(self, graph: torch.fx.GraphModule, example: list[Tensor]) -> Callable[..., Any]:
        """The graph, uncompiled."""
        self.graphs += 1
        return graph.forward

    def __eq__(self, other: object) -> bool:
        """By type."""
        self._compared()
        return isinstance(other, Counted)

    __hash__ = object.__hash__


class Cold(Shown):
    """Two workers call one function that nobody has compiled. Effect: more than one graph."""

    def build(self) -> None:
        """One backend counts for both."""
        self._backend = Counted()
        self._compiled = torch.compile(double, backend=self._backend)

    def workers(self) -> list[Worker]:
        """Both alike."""
        return [Worker(f"caller-{i}", "caller", self.device, partial(self._work, f"caller-{i}")) for i in range(2)]

    def _work(self, name: str) -> None:
        self.step(name, lambda: _call(self._compiled))

    def effect(self) -> bool:
        """How many is a fact of its own."""
        self.ctx.fact("", "graphs", self._backend.graphs)
        return self._backend.graphs > 1


class Warmed(Shown):
    """Main warms a function up as the axis `warmup` says; `trainer` trains with it. Effect: the trainer compiled."""

    def build(self) -> None:
        """Its backend counts."""
        self._backend = Counted()
        self._compiled = torch.compile(double, backend=self._backend)
        self._warm = 0

    def warm_up(self, kind: str) -> None:
        """A forward, and with grad a backward."""
        with torch.set_grad_enabled(kind != "main_no_grad"):
            y = self._compiled(torch.ones(2, requires_grad=True))
        if y.requires_grad:
            y.sum().backward()  # type: ignore[no-untyped-call]
        self._warm = self._backend.graphs

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One step."""
        return {"trainer": self._train}

    def _train(self) -> None:
        self._compiled(torch.ones(2, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]

    def effect(self) -> bool:
        """How many graphs main and trainer compiled are facts of their own."""
        self.ctx.fact("", "graphs", [self._warm, self._backend.graphs - self._warm])
        return self._backend.graphs > self._warm


class Callbacks(Shown):
    """`compiler` compiles; `trainer` takes a step, whose backward is lowered at its first use.

    Effect: a callback is missing.
    """

    def build(self) -> None:
        """Counts as a tool would that uses torch's callbacks."""
        self._double = torch.compile(double, backend="aot_eager")
        self._triple = torch.compile(triple, backend="aot_eager")
        self._started: list[str] = []
        on_compile_start(self._started.append)

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Mark: `forward` after the trainer's forward."""
        return {"compiler": self._compile, "trainer": self._train}

    def _compile(self) -> None:
        self._triple(torch.ones(2))

    def _train(self) -> None:
        y = self._double(torch.ones(2, requires_grad=True))
        self.ctx.mark("trainer", "forward")
        y.sum().backward()  # type: ignore[no-untyped-call]

    def effect(self) -> bool:
        """Two forwards and a backward are compiled. Which were told is a fact of its own."""
        self.ctx.fact("", "told", list(self._started))
        return len(self._started) < 3


class Lookup(Shown):
    """Two callers without gradients call a function that is warm for them, behind a newer entry for gradients.

    Each has a `torch.compile` of its own, so that backends are compared by value, in Python. Effect: it is compiled again.
    """

    def build(self) -> None:
        """Nothing is compiled here: `warm_up` does."""
        self._warm = self._in_a_lookup = 0
        self._compared_by: Counter[str] = Counter()
        self._listening = False
        self._backends = [Counted(self._compared) for _ in range(3)]
        self._functions = [torch.compile(double, backend=backend) for backend in self._backends]

    def warm_up(self, kind: str) -> None:
        """Two entries in the cache of the code object. How many comparisons a lookup of the second takes depends on torch."""
        self._call(0, grad=False)
        self._call(0, grad=True)
        self._compared_by.clear()
        self._call(1, grad=False)
        self._in_a_lookup = self._compared_by.total()
        self._call(0, grad=True)  # a lookup moves what it finds to the front
        self._compared_by.clear()
        self._warm = self._graphs()
        self._listening = True

    def workers(self) -> list[Worker]:
        """Marks: `first_entry` and `compare` while the lookup is at the first of the two, `called`."""
        return [Worker(f"caller-{i}", "caller", self.device, partial(self._work, i)) for i in (1, 2)]

    def _work(self, number: int) -> None:
        name = f"caller-{number}"
        self.step(name, lambda: self._call(number, grad=False))

    def _call(self, number: int, *, grad: bool) -> None:
        with torch.set_grad_enabled(grad):
            self._functions[number](torch.ones(2, requires_grad=True))
        if self._listening:
            self.ctx.mark("", "called")

    def _compared(self) -> None:
        """In the middle of a lookup, on the thread that looks. The last comparison is with the entry that is sought."""
        name = threading.current_thread().name
        self._compared_by[name] += 1
        if self._listening and self._compared_by[name] == self._in_a_lookup - 1:
            self.ctx.mark("", "first_entry")
            self.ctx.mark("", "compare")

    def _graphs(self) -> int:
        return sum(backend.graphs for backend in self._backends)

    def effect(self) -> bool:
        """Everything was warm. How many graphs were compiled before and after is a fact of its own."""
        self.ctx.fact("", "graphs", [self._warm, self._graphs() - self._warm])
        return self._graphs() > self._warm


class EagerAttention(Parts):
    """Two callers call uncompiled attention with gradients. Their errors show it."""

    def warm_up(self, kind: str) -> None:
        """The operator compiles a small graph at its first call, and none afterwards; it traces at each."""
        _attend()

    def workers(self) -> list[Worker]:
        """Both alike."""
        return [Worker(f"caller-{i}", "caller", self.device, partial(self._work, i)) for i in range(2)]

    def _work(self, number: int) -> None:
        self.step(f"caller-{number}", _attend)


def _call(function: Callable[[Tensor], Tensor]) -> None:
    function(torch.ones(2))


def _attend() -> None:
    query = torch.ones(1, 1, 16, 16, requires_grad=True)
    out = flex_attention(query, query, query)
    assert isinstance(out, Tensor)
    out.sum().backward()  # type: ignore[no-untyped-call]
