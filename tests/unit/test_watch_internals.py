"""The two adapters that a watch adds: why a graph is compiled again, and state that a compile puts back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from internals_support import installed

from harness.torch_internals.compile_state import GENERATOR, CompileState, differences, snapshot
from harness.torch_internals.recompiles import Recompiles

WAIT_S = 20.0


class Sink:
    """For both."""

    def __init__(self) -> None:
        self.reasons: list[tuple[str, str]] = []
        self.changes: list[tuple[str, str, str]] = []
        self.saved = 0

    def recompiled(self, function: str, reason: str) -> None:
        self.reasons.append((function, reason))

    def saving(self) -> None:
        self.saved += 1

    def undone(self, what: str, before: str, now: str) -> None:
        self.changes.append((what, before, now))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_the_guard_that_failed_is_told_on_a_recompile_only() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    sink = Sink()
    with installed(Recompiles(), sink):
        compiled = torch.compile(scaled, backend="eager", dynamic=False)
        compiled(torch.ones(2))
        assert sink.reasons == []
        compiled(torch.ones(3))
        compiled(torch.ones(3))
    ((function, reason),) = sink.reasons
    assert function.startswith("scaled (")
    assert function.endswith(f":{scaled.__code__.co_firstlineno})")
    assert "expected 2, actual 3" in reason
    compiled(torch.ones(4))
    assert len(sink.reasons) == 1


def compiling(meanwhile: Callable[[], None]) -> None:
    """Compile something, and let another thread do something within."""

    def backend(graph: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join(WAIT_S)
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))


@pytest.mark.parametrize(
    ("meanwhile", "changes"),
    [
        (lambda: None, []),
        (lambda: torch.rand(1), [(GENERATOR, "", "")]),
        (
            lambda: torch.set_default_dtype(torch.float64),
            [("the default dtype", "torch.float32", "torch.float64")],
        ),
    ],
)
def test_what_another_thread_changed_within_a_compile_is_told(
    meanwhile: Callable[[], None], changes: list[tuple[str, str, str]]
) -> None:
    sink = Sink()
    before = torch.random.get_rng_state()
    with installed(CompileState(), sink):
        compiling(meanwhile)
    assert sink.changes == changes
    assert sink.saved == 1
    # It is true what is said: the compile has put the old state back.
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_draw_is_a_difference_and_two_looks_are_none() -> None:
    first = snapshot()
    assert differences(first, snapshot()) == []
    torch.rand(1)
    assert differences(first, snapshot()) == [(GENERATOR, "", "")]
