from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from internals_support import Recorder, clean_dynamo, in_thread, installed, qkv, trace_held_open
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from harness.torch_internals.compiles import Compiles
from harness.torch_internals.dense import Dense
from harness.torch_internals.flex_cpu import flex_on_cpu
from harness.torch_internals.versions import features

pytestmark = [
    pytest.mark.usefixtures("clean_dynamo"),
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
]
__all__ = ["clean_dynamo"]


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    with flex_on_cpu():
        yield


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    sink = Recorder()
    with installed(Dense(), sink):
        yield sink


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.project(x).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return x + flex_attention(q, k, v).transpose(1, 2).reshape(batch, length, 16)


class Drafter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def steps(function: Callable[..., Any], inputs: Callable[[], Any], times: int = 2) -> None:
    for _ in range(times):
        function(*inputs()).sum().backward()


def hidden(length: int = 16) -> tuple[torch.Tensor]:
    return (torch.randn(1, length, 16, requires_grad=True),)


def compiled_attention() -> Callable[..., Any]:
    return torch.compile(flex_attention, backend="aot_eager")


def attention() -> None:
    steps(compiled_attention(), qkv)


def checkpointed(reentrant: bool) -> Callable[[], None]:
    def run() -> None:
        function = compiled_attention()
        steps(lambda *x: checkpoint(function, *x, use_reentrant=reentrant), qkv)

    return run


def module(make: Callable[[], torch.nn.Module]) -> Callable[[], None]:
    return lambda: steps(torch.compile(make(), backend="aot_eager"), hidden)


def checkpointed_drafter() -> None:
    function = torch.compile(Drafter(), backend="aot_eager")
    steps(lambda x: checkpoint(function, x, use_reentrant=False), hidden)


# What a healthy step does, and how many graphs torch compiles for it without the hook.
HEALTHY: dict[str, tuple[Callable[[], None], int]] = {
    "attention": (attention, 1),
    "reentrant checkpoint": (checkpointed(True), 2),  # the forward without grad, the recompute with it
    "non-reentrant checkpoint": (checkpointed(False), 1),
    "layer": (module(Layer), 1),
    "drafter": (module(Drafter), 1),
    "checkpointed drafter": (checkpointed_drafter, 1),
}


@pytest.mark.parametrize(("work", "graphs"), HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_step_has_none_and_no_further_graph(
    recorder: Recorder, work: Callable[[], None], graphs: int
) -> None:
    compiles = Recorder()
    with installed(Compiles(), compiles):
        work()
    assert recorder.events == []
    assert compiles.count("compile_end frame True") == compiles.count("compile_end graph True") == graphs


def test_guards_differ_in_the_name_of_the_check_only() -> None:
    """Dynamo traces torch's own check; it reaches it through the hook's attribute, and guards that it does."""

    def guards() -> Counter[str]:
        torch._dynamo.reset()
        seen: Counter[str] = Counter()

        def keep(found: Any) -> list[bool]:
            seen.update(re.sub(r"___\d+", "", f"{guard.guard_type} {guard.name}") for guard in found)
            return [True] * len(found)

        torch.compile(flex_attention, backend="eager", options={"guard_filter_fn": keep})(*qkv(grad=False))
        return seen

    guards()  # the first compile of a process has guards of its own: warnings not shown yet
    without = guards()
    assert guards() == without
    with installed(Dense(), Recorder()):
        with_it = guards()
    checks = "G['_validate_sdpa_input']"
    assert all(checks in guard for guard in (without - with_it) + (with_it - without))
    assert (with_it - without).total() == (without - with_it).total() + 1


def test_each_raw_call_is_one(recorder: Recorder) -> None:
    flex_attention(*qkv()).sum().backward()
    flex_attention(*qkv())
    assert recorder.names() == ["dense_call"] * 2


@pytest.mark.parametrize("wrap", [None, Layer], ids=["attention", "layer"])
def test_calls_past_the_recompile_limit_are_counted(recorder: Recorder, wrap: type | None) -> None:
    """2 of 4 lengths get a graph; the other 2 run dense, in silence."""
    limited = torch._dynamo.config.patch(recompile_limit=2)
    module = flex_attention if wrap is None else wrap()
    function = torch.compile(module, backend="aot_eager", dynamic=False)
    with limited:
        for length in range(4):
            function(*(qkv(16 + length) if wrap is None else hidden(16 + length)))
    assert recorder.names() == ["dense_call"] * 2


def test_a_collision_that_is_allowed_runs_dense_where_the_flag_is_global(recorder: Recorder) -> None:
    function = compiled_attention()
    function(*qkv())
    with torch._dynamo.config.patch(error_on_nested_fx_trace=False), trace_held_open():
        function(*qkv())
    assert recorder.names() == ["dense_call"] * features().fx_flag_is_global


def test_a_call_below_dynamo_disable_is_counted(recorder: Recorder) -> None:
    """Here Dynamo compiled the caller and watches the thread; the hook runs all the same."""
    raw = torch._dynamo.disable(lambda *x: flex_attention(*x))
    torch.compile(lambda *x: raw(*x) * 2, backend="aot_eager")(*qkv())
    assert recorder.names() == ["dense_call"]


def test_a_layer_whose_compile_failed_in_silence_is_counted_and_nothing_more_is_compiled() -> None:
    """Dynamo tries every frame below the one that failed; the hook's frame is none of them."""

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        raise KeyError("no")

    def compiles() -> list[str]:
        torch._dynamo.reset()
        sink = Recorder()
        with installed(Compiles(), sink), torch._dynamo.config.patch(suppress_errors=True):
            steps(torch.compile(Layer(), backend=backend), hidden, times=1)
        return sink.spoken()

    compiles()
    without = compiles()
    sink = Recorder()
    with installed(Dense(), sink):
        assert compiles() == without
    assert sink.names() == ["dense_call"]


def test_fake_tensors_are_not_counted(recorder: Recorder) -> None:
    make_fx(lambda *x: flex_attention(*x), tracing_mode="fake")(*qkv(grad=False))
    assert recorder.events == []


def test_it_is_counted_on_the_thread_that_runs_it(recorder: Recorder) -> None:
    import threading

    ident = in_thread(lambda: (flex_attention(*qkv()), threading.get_ident())[1])
    assert recorder.names(ident) == ["dense_call"]


def test_bad_input_is_still_refused(recorder: Recorder) -> None:
    query, key, value = qkv()
    with pytest.raises(ValueError, match="same device"):
        flex_attention(query, key.to("meta"), value)


def test_uninstall_restores_the_name() -> None:
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    before = flex._validate_sdpa_input
    with installed(Dense(), Recorder()):
        assert flex._validate_sdpa_input is not before
    assert flex._validate_sdpa_input is before


def test_a_torch_without_the_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(importlib.import_module("torch.nn.attention.flex_attention"), "_validate_sdpa_input")
    assert "_validate_sdpa_input" in Dense().install(Recorder()).reason
