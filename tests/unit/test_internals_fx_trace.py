from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.fx
import torch.fx._symbolic_trace as symbolic_trace
from internals_support import Recorder, clean_dynamo, in_thread, installed, qkv, trace_held_open
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import flex_attention

from harness.torch_internals.flex_cpu import flex_on_cpu
from harness.torch_internals.fx_trace import FxTrace, flag_is_global, flag_value
from harness.torch_internals.versions import features

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]

ONE_TRACE = ["trace_enter", "window_open", "window_closing", "trace_exit"]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    sink = Recorder()
    with installed(FxTrace(), sink):
        yield sink


def test_symbolic_trace_is_seen(recorder: Recorder) -> None:
    torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    assert recorder.names() == ONE_TRACE


def test_make_fx_is_seen(recorder: Recorder) -> None:
    make_fx(lambda x: x + 1)(torch.ones(2))
    assert recorder.names() == ONE_TRACE


def test_a_tracer_that_overrides_trace_is_seen(recorder: Recorder) -> None:
    class Mine(torch.fx.Tracer):
        def trace(self, *args: object, **kwargs: object) -> torch.fx.Graph:
            return super().trace(*args, **kwargs)  # type: ignore[arg-type]

    Mine().trace(torch.nn.ReLU(), concrete_args=None)
    assert recorder.names() == ONE_TRACE


def test_the_joint_trace_of_a_compile_is_seen(recorder: Recorder) -> None:
    torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(2, requires_grad=True))
    assert recorder.names() == ONE_TRACE


def test_traces_of_an_operator_lie_inside_the_joint_trace(recorder: Recorder) -> None:
    with flex_on_cpu():
        torch.compile(flex_attention, backend="aot_eager")(*qkv())
    names = recorder.names()
    assert len(names) > 8
    assert {names.count(name) for name in ONE_TRACE} == {len(names) // 4}
    depth = deepest = 0
    for name in names:
        depth += {"trace_enter": 1, "trace_exit": -1}.get(name, 0)
        deepest = max(deepest, depth)
    assert (depth, deepest >= 2) == (0, True)


def test_dynamo_alone_opens_no_window(recorder: Recorder) -> None:
    torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
    assert recorder.names() == []


def test_the_flag_is_set_between_the_window_points_only() -> None:
    flags: list[tuple[str, bool]] = []
    sink = Recorder()
    for name in ONE_TRACE:
        sink.on[name] = lambda name=name: flags.append((name, flag_value()))  # type: ignore[misc]
    with installed(FxTrace(), sink):
        make_fx(lambda x: x + 1)(torch.ones(2))
    assert flags == list(zip(ONE_TRACE, (False, True, True, False), strict=True))


def test_modules_are_patched_at_both_window_points() -> None:
    original = torch.nn.Module.__call__
    patched: list[bool] = []
    sink = Recorder()
    for name in ONE_TRACE:
        sink.on[name] = lambda: patched.append(torch.nn.Module.__call__ is not original)
    with installed(FxTrace(), sink):
        make_fx(lambda x: x + 1)(torch.ones(2))
    assert patched == [False, True, True, False]


def test_an_error_in_the_traced_function_closes_the_window(recorder: Recorder) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("traced")

    with pytest.raises(KeyError, match="traced"):
        make_fx(fails)(torch.ones(2))
    assert recorder.names() == ONE_TRACE
    assert not flag_value()


@pytest.mark.parametrize("moment", ["window_open", "window_closing", "trace_exit"])
def test_a_hook_that_raises_leaves_nothing_behind(recorder: Recorder, moment: str) -> None:
    def fail() -> None:
        raise InterruptedError(moment)

    original = torch.nn.Module.__call__
    recorder.on[moment] = fail
    with pytest.raises(InterruptedError, match=moment) as raised:  # keeps the frames, and what they hold, alive
        make_fx(lambda x: x + 1)(torch.ones(2))
    assert torch.nn.Module.__call__ is original
    assert not flag_value()
    assert raised


def test_a_trace_that_was_refused_at_its_entry_has_no_exit(recorder: Recorder) -> None:
    def fail() -> None:
        raise InterruptedError

    recorder.on["trace_enter"] = fail
    with pytest.raises(InterruptedError):
        torch.fx.symbolic_trace(torch.nn.ReLU())
    assert recorder.names() == ["trace_enter"]


def test_the_flag_of_another_threads_trace_is_seen_where_the_flag_is_global() -> None:
    assert flag_is_global() == features().fx_flag_is_global
    with trace_held_open():
        assert flag_value() == flag_is_global()
    assert not flag_value()


def test_events_are_on_the_tracing_thread(recorder: Recorder) -> None:
    import threading

    ident = in_thread(lambda: (make_fx(lambda x: x + 1)(torch.ones(2)), threading.get_ident())[1])
    assert recorder.names(ident) == ONE_TRACE


def test_uninstall_restores_every_name() -> None:
    def names() -> list[object]:
        fx = symbolic_trace
        return [fx.Tracer.__dict__["trace"], fx._patch_wrapped_functions, fx._new_patcher]

    before = names()
    with installed(FxTrace(), Recorder()):
        assert all(new is not old for new, old in zip(names(), before, strict=True))
    assert names() == before


def test_uninstalled_below_another_wrapper_it_says_nothing_more() -> None:
    lower, upper = Recorder(), Recorder()
    first, second = FxTrace(), FxTrace()
    before = symbolic_trace.Tracer.trace
    first.install(lower)
    second.install(upper)
    first.uninstall()
    make_fx(lambda x: x + 1)(torch.ones(2))
    second.uninstall()
    assert (lower.names(), upper.names()) == ([], ONE_TRACE)
    symbolic_trace.Tracer.trace = before  # type: ignore[method-assign]


def test_a_torch_without_the_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(symbolic_trace, "_new_patcher")
    before = symbolic_trace.Tracer.trace
    answer = FxTrace().install(Recorder())
    assert not answer.ok
    assert "torch.fx._symbolic_trace._new_patcher" in answer.reason
    assert symbolic_trace.Tracer.trace is before
