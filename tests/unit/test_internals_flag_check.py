from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import FunctionType

import pytest
import torch
import torch._dynamo
import torch.fx._symbolic_trace as symbolic_trace
from internals_support import Recorder, clean_dynamo, in_thread, installed, trace_held_open

from harness.torch_internals.compiles import Compiles
from harness.torch_internals.flag_check import FlagCheck
from harness.torch_internals.fx_flag import SEAT
from harness.torch_internals.fx_trace import FxTrace
from harness.torch_internals.versions import features

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    sink = Recorder()
    with installed(FlagCheck(), sink):
        yield sink


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_each_call_of_a_compiled_callable_makes_one_check(recorder: Recorder) -> None:
    function = torch.compile(add_one, backend="eager")
    for _ in range(3):
        function(torch.ones(2))
    assert recorder.spoken() == ["check_enter", "checked False"] * 3


def test_a_callable_made_before_the_install_is_seen() -> None:
    function = torch.compile(add_one, backend="eager")
    function(torch.ones(2))
    sink = Recorder()
    with installed(FlagCheck(), sink):
        function(torch.ones(2))
    assert sink.spoken() == ["check_enter", "checked False"]


def test_a_compiled_module_is_seen(recorder: Recorder) -> None:
    torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(2))
    assert recorder.spoken() == ["check_enter", "checked False"]


def test_a_call_that_dynamo_inlines_makes_no_check(recorder: Recorder) -> None:
    inner = torch.compile(add_one, backend="eager")
    torch.compile(lambda x: inner(x) * 2, backend="eager")(torch.ones(2))
    assert recorder.spoken() == ["check_enter", "checked False"]


def test_the_answer_is_what_the_callable_acts_on(recorder: Recorder) -> None:
    function = torch.compile(add_one, backend="eager")
    function(torch.ones(2))
    recorder.clear()
    with trace_held_open():
        if features().fx_flag_is_global:
            with pytest.raises(RuntimeError, match="Detected that you are using FX"):
                function(torch.ones(2))
        else:
            function(torch.ones(2))
    assert recorder.spoken() == ["check_enter", f"checked {features().fx_flag_is_global}"]


def test_who_is_told_of_another_threads_compile(recorder: Recorder) -> None:
    """`fx-flag-collision` itself: a warm call of B while A's compile is in its joint trace, by version."""
    warm = torch.compile(add_one, backend="eager")
    warm(torch.ones(2))
    recorder.clear()

    def call() -> None:
        with suppress(RuntimeError):
            warm(torch.ones(2))

    told: list[str] = []

    def inside_the_window() -> None:
        recorder.clear()
        in_thread(call)
        told.extend(recorder.spoken())

    tracing = Recorder()
    tracing.on["window_open"] = inside_the_window
    with installed(FxTrace(), tracing):
        torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(2, requires_grad=True))
    collides = features().fx_flag_is_global and not features().compile_hides_fx_flag
    assert told == ["check_enter", f"checked {collides}"]


def test_a_hook_between_enter_and_check_decides_the_answer(recorder: Recorder) -> None:
    """`check_enter` comes before the flag is read: a trace that opens in the hook is seen by the check."""
    function = torch.compile(add_one, backend="eager")
    function(torch.ones(2))
    recorder.clear()
    held = trace_held_open()
    recorder.on["check_enter"] = lambda: held.__enter__()
    try:
        with suppress(RuntimeError):  # the error that follows a True answer, where there is one
            function(torch.ones(2))
    finally:
        recorder.on.clear()
        held.__exit__(None, None, None)
    assert recorder.spoken() == ["check_enter", f"checked {features().fx_flag_is_global}"]


def test_the_hook_runs_with_dynamo_switched_off(recorder: Recorder) -> None:
    def compute() -> None:
        torch.sin(torch.ones(2))

    compiled = Recorder()
    recorder.on["checked"] = compute
    with installed(Compiles(), compiled):
        torch.compile(add_one, backend="eager")(torch.ones(2))
    assert compiled.count("compile_end frame True") == 1


def test_other_callers_of_the_function_are_not_reported(recorder: Recorder) -> None:
    assert symbolic_trace.is_fx_symbolic_tracing() is False
    assert recorder.spoken() == []


def test_compiled_code_that_asks_is_answered_without_a_graph_break_or_a_guard(recorder: Recorder) -> None:
    """Dynamo knows the function by identity and folds it to False; were it traced, the flag would be guarded."""

    def asks(x: torch.Tensor) -> torch.Tensor:
        if symbolic_trace.is_fx_symbolic_tracing():
            return x - 1
        return x + 1

    compiled = Recorder()
    with installed(Compiles(), compiled):
        function = torch.compile(asks, backend="eager", fullgraph=True)
        assert function(torch.ones(1)).item() == 2
        with trace_held_open(), torch._dynamo.config.patch(force_compile_during_fx_trace=True):
            assert function(torch.ones(1)).item() == 2
    assert compiled.count("compile_end graph True") == 1


def test_uninstall_restores_the_code_and_callables_stay_usable() -> None:
    asked = symbolic_trace.is_fx_symbolic_tracing
    code = asked.__code__
    sink = Recorder()
    with installed(FlagCheck(), sink):
        assert symbolic_trace.is_fx_symbolic_tracing is asked
        function = torch.compile(add_one, backend="eager")
    assert asked.__code__ is code
    assert function(torch.ones(1)).item() == 2
    assert sink.spoken() == []


def test_a_second_install_is_refused(recorder: Recorder) -> None:
    with pytest.raises(RuntimeError, match="installed already"):
        FlagCheck().install(Recorder())


def test_a_torch_without_the_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(symbolic_trace, "is_fx_symbolic_tracing")
    assert "is_fx_symbolic_tracing" in FlagCheck().install(Recorder()).reason


def test_a_torch_whose_function_takes_arguments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic_trace, "is_fx_symbolic_tracing", lambda strict: False)
    answer = FlagCheck().install(Recorder())
    assert not answer.ok
    assert "takes arguments" in answer.reason
    assert isinstance(symbolic_trace.is_fx_symbolic_tracing, FunctionType)
    assert SEAT.observer is None
