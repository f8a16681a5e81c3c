from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._dynamo
from functorch.compile import make_boxed_func
from internals_support import WAIT_S, Recorder, clean_dynamo, in_thread, installed, qkv
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.callback import callback_handler
from torch.nn.attention.flex_attention import flex_attention

from harness.torch_internals.compiles import Compiles

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]

GRAPH = "compile_end graph True"
FRAME = "compile_end frame True"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    sink = Recorder()
    with installed(Compiles(), sink):
        yield sink


def in_one_graph(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def in_two_graphs(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def in_five_graphs(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    x = x - 2
    torch._dynamo.graph_break()
    x = x * 3
    torch._dynamo.graph_break()
    x = x / 4
    torch._dynamo.graph_break()
    return x * 2


@pytest.mark.parametrize(("function", "graphs"), [(in_one_graph, 1), (in_two_graphs, 2), (in_five_graphs, 5)])
def test_graphs_are_counted_exactly(recorder: Recorder, function: Callable[..., object], graphs: int) -> None:
    given: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        given.append(graph)
        return graph.forward

    compiled = torch.compile(function, backend=backend)
    compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert (recorder.count(GRAPH), len(given)) == (graphs, graphs)


def test_the_order_of_events_of_one_compile(recorder: Recorder) -> None:
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert recorder.spoken() == ["compile_start frame", "compile_start graph", GRAPH, FRAME]


def test_each_recompile_is_one_graph(recorder: Recorder) -> None:
    function = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    for length in (2, 3, 4, 3):
        function(torch.ones(length))
    assert recorder.count(GRAPH) == 3


def test_code_shared_by_two_compiled_callables_is_compiled_once(recorder: Recorder) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    for _ in range(2):
        torch.compile(function, backend="eager")(torch.ones(2))
    assert recorder.count(GRAPH) == 1


def test_the_backward_graph_is_lowered_once_at_its_first_use(recorder: Recorder) -> None:
    function = torch.compile(lambda x: x.sin(), backend="aot_eager")
    x = torch.ones(2, requires_grad=True)
    losses = [function(x).sum(), function(x).sum()]
    assert "backward_lowering_enter" not in recorder.names()
    for loss in losses:
        loss.backward()
    assert recorder.spoken()[-2:] == ["backward_lowering_enter", "backward_lowering_exit True"]
    assert recorder.names().count("backward_lowering_enter") == 1


def test_with_symbolic_sizes_the_backward_is_lowered_with_the_forward(recorder: Recorder) -> None:
    function = torch.compile(lambda x: x.sin() * x.size(0), backend="aot_eager", dynamic=True)
    function(torch.ones(3, requires_grad=True)).sum().backward()
    assert recorder.count(GRAPH) == 1
    assert "backward_lowering_enter" not in recorder.names()


def test_a_backend_that_fails_is_no_compile(recorder: Recorder) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        raise KeyError("backend")

    with pytest.raises(Exception, match="backend"):
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert recorder.spoken()[2:] == ["compile_end graph False", "compile_end frame False"]


def test_events_are_on_the_compiling_thread(recorder: Recorder) -> None:
    def work() -> int:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        return threading.get_ident()

    ident = in_thread(work)
    assert recorder.names(ident) == ["compile_start", "compile_start", "compile_end", "compile_end"]
    assert len(recorder.events) == 4


def test_a_compile_beside_a_lazy_lowering_is_not_lost(recorder: Recorder) -> None:
    """torch's own callbacks fall silent for the second of two compiles that overlap; this hook does not."""
    own: list[str] = []
    callback_handler.register_start_callback(lambda args: own.append(args.callback_trigger.name))
    lowering, compiled = threading.Event(), threading.Event()

    def lower(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        lowering.set()
        assert compiled.wait(WAIT_S)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=lower)
    loss = torch.compile(lambda x: x.sin(), backend=backend)(torch.ones(2, requires_grad=True)).sum()
    recorder.clear()
    own.clear()
    backward = threading.Thread(target=loss.backward)
    backward.start()
    assert lowering.wait(WAIT_S)
    torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(2))
    compiled.set()
    backward.join(WAIT_S)
    assert not backward.is_alive()
    assert own == ["LAZY_BACKWARD"]
    assert recorder.count(FRAME) == 1
    assert recorder.count("backward_lowering_exit True") == 1


def test_a_dense_calls_own_graph_is_told_apart(recorder: Recorder) -> None:
    flex_attention(*qkv(grad=False))
    assert recorder.count("compile_end operator_graph True") == 1
    assert recorder.count(GRAPH) == 0


def test_compiling_with_and_without_the_hook_makes_the_same_guards() -> None:
    def guards() -> list[str]:
        torch._dynamo.reset()
        seen: list[str] = []

        def keep(found: object) -> list[bool]:
            seen.extend(str(guard.name) + guard.guard_type for guard in found)  # type: ignore[attr-defined]
            return [True] * len(found)  # type: ignore[arg-type]

        layer = torch.nn.Linear(2, 2)
        torch.compile(layer, backend="eager", options={"guard_filter_fn": keep})(torch.ones(2))
        return sorted(seen)

    without = guards()
    with installed(Compiles(), Recorder()):
        assert guards() == without
    assert without


def test_uninstall_restores_every_name() -> None:
    from torch._dynamo.callback import CompilationCallbackHandler
    from torch._dynamo.output_graph import OutputGraph

    before = (CompilationCallbackHandler.install_callbacks, OutputGraph.call_user_compiler)
    with installed(Compiles(), Recorder()):
        pass
    assert (CompilationCallbackHandler.install_callbacks, OutputGraph.call_user_compiler) == before


def test_a_torch_without_the_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.output_graph import OutputGraph

    monkeypatch.delattr(OutputGraph, "call_user_compiler")
    answer = Compiles().install(Recorder())
    assert not answer.ok
    assert "OutputGraph.call_user_compiler" in answer.reason
