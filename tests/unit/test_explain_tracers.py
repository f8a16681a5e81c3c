"""One message, several hazards: told apart by the stack of the thread that traced; and a thread that traces itself."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from dump_texts import CHANGES, FOLDER, read

from harness import cli
from harness.analysis.dumps import Dump, DumpThread, Frame, Raised, parse
from harness.analysis.explain import Match, match
from harness.analysis.self_trace import traces_itself
from harness.control.dump_source import raised_of

Stack = tuple[str, ...]
CALL = ("train.py:step", "torch/_dynamo/eval_frame.py:compile_wrapper")
RECOMPUTE = (
    "train.py:step", "torch/autograd/graph.py:_engine_run_backward", "torch/utils/checkpoint.py:unpack_hook",
    "torch/utils/checkpoint.py:recompute_fn", "torch/_dynamo/eval_frame.py:compile_wrapper",
)  # fmt: skip
REENTRANT = (
    "train.py:step", "torch/autograd/graph.py:_engine_run_backward", "torch/utils/checkpoint.py:backward",
    "torch/_dynamo/eval_frame.py:compile_wrapper",
)  # fmt: skip
MAKE_FX = (
    "torch/fx/experimental/proxy_tensor.py:wrapped", "torch/fx/experimental/proxy_tensor.py:dispatch_trace",
    "torch/_dynamo/eval_frame.py:_fn", "torch/fx/_symbolic_trace.py:trace",
)  # fmt: skip
COMPILE = ("train.py:step", "torch/_dynamo/eval_frame.py:compile_wrapper", "torch/_dynamo/convert_frame.py:_compile")
FLEX = (
    "torch/nn/attention/flex_attention.py:flex_attention", "torch/_ops.py:dispatch",
    "torch/_higher_order_ops/flex_attention.py:create_fw_bw_graph",
)  # fmt: skip
LOWERING = (
    "torch/autograd/graph.py:_engine_run_backward", "torch/_functorch/_aot_autograd/runtime_wrappers.py:_backward_impl",
    "torch/_inductor/compile_fx.py:bw_compiler", "torch/_inductor/pattern_matcher.py:fwd_only",
)  # fmt: skip
EAGER, BACKWARD, HOLE = "fx-flag-collision-eager", "fx-flag-collision-backward", "first-step-hole"
MESSAGE = "Detected that you are using FX to symbolically trace a dynamo-optimized function."


def frames(names: Stack) -> tuple[Frame, ...]:
    return tuple(Frame(name.rpartition(":")[2], name.rpartition(":")[0], 1) for name in names)


def collision(failing: Stack, *tracers: Stack) -> list[Match]:
    meanwhile = tuple(DumpThread(f"t{n}", frames=frames(names)) for n, names in enumerate(tracers))
    return match(Dump((), (Raised("RuntimeError", MESSAGE, frames(failing), "b", meanwhile=meanwhile),)))


@pytest.mark.parametrize(
    ("failing", "tracers", "first"),
    [
        (CALL, [("train.py:step", *MAKE_FX)], "fx-flag-collision"),
        (CALL, [("train.py:step", "torch/fx/_symbolic_trace.py:trace")], "fx-flag-collision"),
        (CALL, [(*COMPILE, *MAKE_FX)], "fx-flag-collision"),
        (CALL, [(*COMPILE, *FLEX, *MAKE_FX)], "fx-flag-collision"),
        (CALL, [(*MAKE_FX, *FLEX, *MAKE_FX)], "fx-flag-collision"),
        (CALL, [("train.py:step", *FLEX, *MAKE_FX)], EAGER),
        (CALL, [(*COMPILE, *MAKE_FX), ("train.py:step", *FLEX, *MAKE_FX)], EAGER),
        (CALL, [(*LOWERING, *MAKE_FX)], BACKWARD),
        (RECOMPUTE, [("train.py:step", *MAKE_FX)], "recompute-collision"),
        (RECOMPUTE, [("train.py:step", *FLEX, *MAKE_FX)], "recompute-collision"),
        (REENTRANT, [(*LOWERING, *MAKE_FX)], "recompute-collision-reentrant"),
        (CALL, [], "fx-flag-collision"),
    ],
)
def test_what_both_stacks_speak_for_comes_first(failing: Stack, tracers: list[Stack], first: str) -> None:
    found = collision(failing, *tracers)
    assert found[0].hazard.id == first
    assert found[0].certain


def test_what_only_another_stack_could_tell_comes_last_and_says_so() -> None:
    compiled = {one.hazard.id: one for one in collision(CALL, (*COMPILE, *MAKE_FX))}
    assert list(compiled) == ["fx-flag-collision", HOLE, EAGER, BACKWARD]
    assert not compiled[HOLE].certain
    assert "no stack tells whether the first steps run under a lock" in compiled[HOLE].why
    assert not compiled[EAGER].certain
    assert "are not on the stack of the thread that traced" in compiled[EAGER].why
    alone = {one.hazard.id: one for one in collision(CALL)}
    assert next(iter(alone)) == "fx-flag-collision"
    for name in (EAGER, BACKWARD, HOLE):
        assert not alone[name].certain
        assert "which would tell it from others, is not in this text" in alone[name].why


def traceback(*names: str) -> str:
    lines = "".join(f'  File "{name.rpartition(":")[0]}", line 1, in {name.rpartition(":")[2]}\n' for name in names)
    return f"Traceback (most recent call last):\n{lines}RuntimeError: {MESSAGE}\n"


def stack(*names: str) -> str:
    return "".join(f'  File "{name.rpartition(":")[0]}", line 1, in {name.rpartition(":")[2]}\n    x\n' for name in names)


def error(tracer: str) -> dict[str, Any]:
    tracers = [{"thread": "drafter-0", "worker": "drafter-0", "region": "step", "stack": tracer}]
    return {"type": "RuntimeError", "message": MESSAGE, "thread": "b", "traceback": traceback(*CALL), "tracers": tracers}


def test_the_tracers_of_a_row_and_of_a_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tracer, first in ((stack("a.py:f", *FLEX, *MAKE_FX), EAGER), (stack(*LOWERING, *MAKE_FX), BACKWARD)):
        told = error(tracer)
        assert match(Dump((), tuple(raised_of(told))))[0].hazard.id == first
        (tmp_path / "result.json").write_text(json.dumps({"torch": "2.13.0", "errors": [told]}), encoding="utf-8")
        (tmp_path / "results.jsonl").write_text(json.dumps({"torch": "2.13.0", "errors": [told]}) + "\n", encoding="utf-8")
        for given in (tmp_path, tmp_path / "results.jsonl"):
            code, out = explain(capsys, str(given), "--json")
            assert (code, json.loads(out)["matches"][0]["id"]) == (0, first)
            assert json.loads(out)["matches"][0]["missing"] == ""
        words = " ".join(explain(capsys, str(tmp_path))[1].split())
        assert "possible harness hazards fx-flag-collision" in words
        assert "but the frames that would tell it from others are not on the stack" in words


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["explain", *arguments])
    return int(str(ended.value.code)), capsys.readouterr().out


SYMBOLIC = FOLDER / "self" / "symbolic_trace.txt"
OWN = FOLDER / "self" / "make_fx.txt"


@pytest.mark.parametrize(("path", "by"), [(SYMBOLIC, "symbolic_trace"), (OWN, "make_fx")])
def test_a_thread_that_traces_itself_is_no_race(path: Path, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = explain(capsys, str(path))
    assert code == 1
    words = " ".join(out.split())
    assert f"this thread traces itself: a compiled function was called inside {by}; no race" in words
    assert "called from /home/user/train.py:5 in f" in words
    assert "remedy Do not trace through a compiled callable" in words
    assert "fx-flag-collision" not in out
    assert "none that is known" not in out
    code, out = explain(capsys, str(path), "--json")
    document = json.loads(out)
    (told,) = document["self_traces"]
    assert (code, document["matches"], told["by"]) == (1, [], by)
    assert {"says", "trace", "call", "from", "remedy", "thread"} <= set(told)


@pytest.mark.parametrize("path", [SYMBOLIC, OWN])
def test_whatever_was_done_to_the_text(path: Path) -> None:
    for change in CHANGES:
        dump = parse(change(read(path)))
        assert [one for one in map(traces_itself, dump.exceptions) if one]
        assert match(dump) == []


def test_export_and_who_does_not_trace() -> None:
    def found(*names: str, message: str = MESSAGE) -> str | None:
        own = traces_itself(Raised("RuntimeError", message, frames(names)))
        return own.by if own else None

    assert found("torch/export/_trace.py:_export", *MAKE_FX, "m.py:forward", *CALL) == "export"
    assert found("m.py:f", *MAKE_FX, *CALL) == "make_fx"
    assert found(*CALL) is None
    assert found(*RECOMPUTE) is None
    assert found(*CALL, *MAKE_FX) is None, "the trace is inside of the call"
    assert found("tracers/_symbolic_trace.py:trace", *CALL) is None, "a file of the user's"
    assert found(*MAKE_FX, *CALL, message="another") is None


def test_another_threads_race_is_told_beside_it() -> None:
    dump = parse(read(SYMBOLIC) + "\n" + read(FOLDER / "fx-flag-collision.txt"))
    found = match(dump)
    assert found[0].hazard.id == "fx-flag-collision"
    assert found[0].exception is not None
    assert found[0].exception.thread == "caller"


@pytest.mark.parametrize("text", ["hello\n", "Epoch 1 loss: 3.2\nEpoch: 2\nERROR train - loss: 3.1\n", "Loss: 3\nstep 4: ok\n"])
def test_where_there_is_no_traceback_that_is_said(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, out = explain(capsys, "-")
    assert code == 1
    assert "read: there is no traceback and no stack in it" in out
    assert "exception" not in out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert json.loads(explain(capsys, "-", "--json")[1])["exceptions"] == []
