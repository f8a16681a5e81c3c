from __future__ import annotations

import sys
import threading
from types import ModuleType

import pytest
import torch
import torch._dynamo
import torch.fx._symbolic_trace as symbolic_trace
from internals_support import WAIT_S, Recorder, clean_dynamo, in_thread, installed, trace_held_open
from torch._higher_order_ops.utils import _set_compilation_env
from torch.fx.experimental.proxy_tensor import make_fx

from harness.torch_internals import thread_local_fx
from harness.torch_internals.flag_check import FlagCheck
from harness.torch_internals.fx_trace import FxTrace, flag_value
from harness.torch_internals.thread_local_fx import ThreadLocalFx
from harness.torch_internals.versions import features

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]

with_a_global_flag = pytest.mark.skipif(
    not features().fx_flag_is_global, reason="the flag is per thread on this torch already"
)


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@pytest.mark.skipif(features().fx_flag_is_global, reason="the flag is global on this torch")
def test_where_the_flag_is_per_thread_already_it_says_so() -> None:
    answer = ThreadLocalFx().install()
    assert not answer.ok
    assert "already" in answer.reason


@with_a_global_flag
def test_a_version_that_was_not_tested_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_local_fx, "release", lambda: (2, 10, 0))
    answer = ThreadLocalFx().install()
    assert not answer.ok
    assert "only on 2.11, 2.12, 2.13" in answer.reason


@with_a_global_flag
def test_another_threads_trace_no_longer_stops_a_compiled_call() -> None:
    function = torch.compile(add_one, backend="eager")
    function(torch.ones(1))
    with installed(ThreadLocalFx()), trace_held_open():
        assert not flag_value()
        assert function(torch.ones(1)).item() == 2
    with trace_held_open(), pytest.raises(RuntimeError, match="Detected that you are using FX"):
        function(torch.ones(1))


@with_a_global_flag
def test_a_compiled_call_inside_ones_own_trace_is_still_refused() -> None:
    function = torch.compile(add_one, backend="eager")
    with installed(ThreadLocalFx()), pytest.raises(RuntimeError, match="Detected that you are using FX"):
        make_fx(lambda x: function(x))(torch.ones(1))
    assert not flag_value()


@with_a_global_flag
def test_every_reader_sees_the_threads_own_flag() -> None:
    answers: list[bool] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        answers.append(symbolic_trace.is_fx_tracing())
        answers.append(symbolic_trace.is_fx_symbolic_tracing())
        answers.append(flag_value())
        answers.extend(in_thread(lambda: (symbolic_trace.is_fx_tracing(), flag_value())))
        return x + 1

    with installed(ThreadLocalFx()):
        make_fx(body)(torch.ones(1))
    assert answers == [True, True, True, False, False]


@with_a_global_flag
def test_interleaved_traces_leave_no_flag_behind() -> None:
    """`fx-flag-stuck`: A enters, B enters, A leaves, B leaves."""
    a_inside, b_inside, a_left = threading.Event(), threading.Event(), threading.Event()

    def trace(inside: threading.Event, leave: threading.Event) -> None:
        def body(x: torch.Tensor) -> torch.Tensor:
            inside.set()
            assert leave.wait(WAIT_S)
            return x + 1

        make_fx(body)(torch.ones(1))

    def a() -> None:
        trace(a_inside, b_inside)
        a_left.set()

    def run() -> None:
        thread = threading.Thread(target=a)
        thread.start()
        assert a_inside.wait(WAIT_S)
        # The patcher is still one for the process: A has undone B's patches, and B finds none.
        with pytest.raises(AssertionError, match="CURRENT_PATCHER is None"):
            trace(b_inside, a_left)
        thread.join(WAIT_S)

    try:
        with installed(ThreadLocalFx()):
            in_thread(run)
            assert not flag_value()
        assert symbolic_trace._is_fx_tracing_flag is True  # the module's own flag did get stuck
    finally:
        symbolic_trace._is_fx_tracing_flag = False
        torch.nn.Module.__call__ = symbolic_trace._orig_module_call  # type: ignore[method-assign]
        torch.nn.Module.__getattr__ = symbolic_trace._orig_module_getattr  # type: ignore[method-assign]


@with_a_global_flag
def test_operators_that_switch_the_flag_off_do_so_for_their_thread() -> None:
    seen: list[tuple[bool, bool]] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        with _set_compilation_env():
            seen.append((flag_value(), symbolic_trace.is_fx_tracing()))
        seen.append((flag_value(), symbolic_trace.is_fx_tracing()))
        return x + 1

    with installed(ThreadLocalFx()):
        make_fx(body)(torch.ones(1))
    assert seen == [(False, False), (True, True)]


@with_a_global_flag
@pytest.mark.parametrize("probes_first", [False, True])
def test_probes_work_with_it_in_either_order(probes_first: bool) -> None:
    sink = Recorder()
    adapters = [ThreadLocalFx(), FlagCheck(), FxTrace()]
    for adapter in reversed(adapters) if probes_first else adapters:
        assert adapter.install(sink).ok  # type: ignore[attr-defined]
    function = torch.compile(add_one, backend="eager")
    function(torch.ones(1))
    with trace_held_open():
        function(torch.ones(1))
    assert [event for event in sink.spoken() if event.startswith("checked")] == ["checked False"] * 2
    assert "window_open" in sink.names()
    for adapter in adapters:
        adapter.uninstall()  # type: ignore[attr-defined]
    with trace_held_open(), pytest.raises(RuntimeError, match="Detected that you are using FX"):
        function(torch.ones(1))


@with_a_global_flag
def test_uninstall_restores_everything() -> None:
    def state() -> list[object]:
        fx = symbolic_trace
        functions = [fx.is_fx_tracing.__code__, fx.is_fx_symbolic_tracing.__code__, fx.Tracer.trace]
        return [*functions, type(fx), sorted(vars(fx))]

    before = state()
    adapter = ThreadLocalFx()
    with installed(adapter):
        assert type(symbolic_trace) is not ModuleType
        assert sys.modules["torch.fx._symbolic_trace"] is symbolic_trace
    adapter.uninstall()
    assert state() == before


@with_a_global_flag
def test_it_is_refused_inside_a_trace() -> None:
    with trace_held_open():
        answer = ThreadLocalFx().install()
    assert not answer.ok
    assert "in an FX trace" in answer.reason
