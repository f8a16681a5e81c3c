from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from internals_support import Recorder, clean_dynamo, in_thread, installed
from torch.utils.checkpoint import checkpoint

from harness.torch_internals.compiles import Compiles
from harness.torch_internals.engine import Engine, graph_task_id, tag_graph

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]

ONE_RUN = ["engine_enter", "engine_exit"]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    sink = Recorder()
    with installed(Engine(), sink):
        yield sink


def leaf() -> torch.Tensor:
    return torch.ones(2, requires_grad=True)


def test_backward_is_seen(recorder: Recorder) -> None:
    leaf().sum().backward()
    assert recorder.names() == ONE_RUN


def test_autograd_grad_and_autograd_backward_are_seen(recorder: Recorder) -> None:
    x = leaf()
    torch.autograd.grad(x.sum(), x)
    torch.autograd.backward([x.sum(), x.cos().sum()])
    assert recorder.names() == ONE_RUN * 2


def test_a_reentrant_recompute_is_a_run_inside_the_run(recorder: Recorder) -> None:
    checkpoint(torch.sin, leaf(), use_reentrant=True).sum().backward()
    assert recorder.names() == ["engine_enter", *ONE_RUN, "engine_exit"]


def test_a_non_reentrant_recompute_is_no_run_of_its_own(recorder: Recorder) -> None:
    checkpoint(torch.sin, leaf(), use_reentrant=False).sum().backward()
    assert recorder.names() == ONE_RUN


def test_the_joint_trace_of_a_compile_is_a_run(recorder: Recorder) -> None:
    torch.compile(lambda x: x.sin(), backend="aot_eager")(leaf())
    assert recorder.names() == ONE_RUN


def test_a_backward_that_fails_leaves_the_engine(recorder: Recorder) -> None:
    def fails(gradient: torch.Tensor) -> torch.Tensor:
        raise KeyError("hook")

    x = leaf()
    x.register_hook(fails)
    with pytest.raises(KeyError, match="hook"):
        x.sum().backward()
    assert recorder.names() == ONE_RUN


def test_the_sink_gets_the_roots() -> None:
    roots: list[Any] = []

    class Sink(Recorder):
        def engine_enter(self, given: Any) -> None:
            roots.extend(given)

    loss = leaf().sum()
    with installed(Engine(), Sink()):
        loss.backward()
    assert len(roots) == 1
    assert roots[0] is loss


def test_backward_inside_a_compiled_function_compiles_nothing_more() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = (x.sin() * 2).sum()
        loss.backward()
        return x + 1

    def compiles() -> list[str]:
        torch._dynamo.reset()
        sink = Recorder()
        with installed(Compiles(), sink):
            torch.compile(step, backend="aot_eager")(leaf())
        return sink.spoken()

    compiles()  # the first compile of a process compiles frames of torch itself, too
    without = compiles()
    sink = Recorder()
    with installed(Engine(), sink):
        assert compiles() == without
    assert sink.names().count("engine_enter") >= 1


def test_outside_the_engine_there_is_no_graph_task() -> None:
    assert graph_task_id() == -1


def test_a_tag_is_called_on_the_graphs_thread_with_the_id_that_its_hooks_see() -> None:
    seen: list[tuple[str, int]] = []
    x = leaf()
    x.register_hook(lambda gradient: seen.append(("hook", graph_task_id())))
    loss = x.sin().sum()
    tag_graph(loss, lambda task: seen.append(("tag", task)))
    loss.backward()
    assert [name for name, _ in seen] == ["tag", "hook"]
    assert seen[0][1] == seen[1][1] >= 0


def test_each_backward_has_a_task_of_its_own() -> None:
    tasks: list[int] = []
    for _ in range(2):
        loss = leaf().sum()
        tag_graph(loss, tasks.append)
        loss.backward()
    assert len(set(tasks)) == 2


def test_a_nested_run_has_a_task_of_its_own_and_the_outer_one_comes_back() -> None:
    inside: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        inside.append(graph_task_id())  # -1 in the forward, the outer task in the recompute
        return x.sin()

    x = leaf()
    nested: list[int] = []
    x.register_hook(lambda gradient: nested.append(graph_task_id()))
    loss = checkpoint(function, x, use_reentrant=True).sum()
    outer: list[int] = []
    tag_graph(loss, outer.append)
    loss.backward()
    assert inside == [-1, outer[0]]
    assert nested == outer


@pytest.mark.parametrize("kind", ["leaf", "edge", "node"])
def test_a_tag_takes_a_leaf_an_edge_and_a_node(kind: str) -> None:
    x, tasks = leaf(), []
    loss = x.sum()
    root: Any = {"leaf": x, "edge": torch.autograd.graph.get_gradient_edge(loss), "node": loss.grad_fn}[kind]
    tag_graph(root, tasks.append)
    loss.backward()
    assert len(tasks) == 1


def test_a_tag_can_be_removed() -> None:
    tasks: list[int] = []
    loss = leaf().sum()
    remove = tag_graph(loss, tasks.append)
    remove()
    loss.backward()
    assert tasks == []


def test_a_tensor_without_gradient_cannot_be_tagged() -> None:
    with pytest.raises(ValueError, match="without gradient"):
        tag_graph(torch.ones(2), lambda task: None)


def test_events_are_on_the_thread_that_waits(recorder: Recorder) -> None:
    ident = in_thread(lambda: (leaf().sum().backward(), threading.get_ident())[1])
    assert recorder.names(ident) == ONE_RUN


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_the_graph_runs_on_another_thread_that_knows_the_task(recorder: Recorder) -> None:
    """Recomputes of both kinds run on the device's thread too; a nested run has a task of its own there."""
    seen: list[tuple[int, int]] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        seen.append((threading.get_ident(), graph_task_id()))
        return x.sin()

    for reentrant in (False, True):
        seen.clear()
        tags: list[int] = []
        x = torch.ones(2, device="cuda", requires_grad=True)
        loss = checkpoint(function, x, use_reentrant=reentrant).sum()
        tag_graph(loss, tags.append)
        loss.backward()
        assert seen[0] == (threading.get_ident(), -1)
        assert seen[1][0] != threading.get_ident()
        assert [seen[1][1]] == tags


def test_uninstall_restores_both_names() -> None:
    before = torch.autograd.graph._engine_run_backward
    with installed(Engine(), Recorder()):
        assert torch.autograd._engine_run_backward is torch.autograd.graph._engine_run_backward  # type: ignore[attr-defined]
        assert torch.autograd.graph._engine_run_backward is not before
    assert torch.autograd.graph._engine_run_backward is before
    assert torch.autograd._engine_run_backward is before  # type: ignore[attr-defined]


def test_a_torch_without_the_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd.graph, "_engine_run_backward")
    assert "_engine_run_backward" in Engine().install(Recorder()).reason
