"""`harness.analysis.explain` on small dumps and hazards of its own: what is enough for a match, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis.dumps import Dump, DumpThread, Frame, Raised, parse
from harness.analysis.explain import bare, match
from harness.analysis.frame_patterns import fit, matches
from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Plan
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature, ThreadPattern

LOCK = ThreadPattern("A", "compiles, and waits for the engine", ("convert_frame.py:_compile", "create_joint", "run_backward$"))
ENGINE = ThreadPattern("B", "waits for the compile lock", ("backward", "bw_compiler|lower_backward$"))
SAID = r"RuntimeError: Detected that you are using FX"


def hazard(name: str, signature: Signature, versions: str = "") -> Hazard:
    case = Case(name, name, Scenario(), Plan(), Effect(fact="effect"))
    words = ("a window", "an access", "an effect", "a remedy")
    return Hazard(name, "a title", versions, "cpu", *words, signature, case, elsewhere="no")


DEADLOCK = hazard("deadlock", Signature(threads=(LOCK, ENGINE)))
COLLISION = hazard("collision", Signature(errors=(SAID,)))
RECOMPUTE = hazard("recompute", Signature(errors=(SAID,), frames=("checkpoint.py:unpack_hook", "recompute_fn")))
TLS = hazard("tls", Signature(errors=(r"^AssertionError$",), frames=("cudagraph_trees.py:get_container", "get_obj")))


def stack(*functions: str, **about: object) -> DumpThread:
    frames = tuple(Frame(name.rpartition(":")[2], name.rpartition(":")[0] or "train.py", 1) for name in functions)
    return DumpThread(frames=frames, **about)  # type: ignore[arg-type]


COMPILING = stack("<module>", "lib/convert_frame.py:_compile", "ops.py:create_joint", "graph.py:run_backward", name="one")
LOWERING = stack("apply", "CompiledFunction.backward", "bw_compiler", name="autograd-1")


def ids(*threads: DumpThread, hazards: tuple[Hazard, ...] = (DEADLOCK,)) -> list[str]:
    return [found.hazard.id for found in match(Dump(threads), hazards)]


def test_a_deadlock_takes_a_thread_for_each_role() -> None:
    (found,) = match(Dump((LOWERING, COMPILING)), [DEADLOCK])
    assert [(role.role, role.thread) for role in found.roles] == [("A", 'Thread "one"'), ("B", 'Thread "autograd-1"')]
    assert found.roles[0].at == "graph.py:1 in run_backward"
    assert found.certain
    assert "waits for the compile lock" in found.why
    assert ids(COMPILING) == ids(LOWERING) == ids(COMPILING, COMPILING) == []


BOTH = stack("backward", "bw_compiler", "convert_frame.py:_compile", "create_joint", "run_backward")
"""Fits A and, but for "$", B."""

PAIR = hazard("pair", Signature(threads=(replace(ENGINE, frames=("backward", "bw_compiler")), LOCK)))


def test_one_thread_cannot_play_both_roles() -> None:
    assert ids(BOTH, hazards=(PAIR,)) == []


def test_threads_are_assigned_even_if_the_first_that_fits_is_wrong() -> None:
    """`LOWERING` fits B only: A must get `BOTH`, wherever it stands in the dump."""
    assert ids(BOTH, LOWERING, hazards=(PAIR,)) == ids(LOWERING, BOTH, hazards=(PAIR,)) == ["pair"]


ON_ENGINE = hazard("engine", Signature(threads=(LOCK, replace(ENGINE, frames=("backward", "bw_compiler"), engine=True))))
RUN = "autograd/graph.py:_engine_run_backward"


@pytest.mark.parametrize(
    ("outside", "cut", "found"),
    [
        (("autograd/function.py:apply",), True, True),
        (("autograd/function.py:apply", "utils/checkpoint.py:backward", RUN), True, True),
        (("threading.py:_bootstrap", "train.py:step", RUN), False, False),
        (("train.py:step", RUN, "autograd/function.py:apply"), True, False),
    ],
    ids=["a device's thread", "a reentrant checkpoint on it", "the thread that asked", "that one, cut"],
)
def test_autograds_own_thread_is_told_from_a_backward_on_the_cpu(outside: tuple[str, ...], cut: bool, found: bool) -> None:
    thread = stack(*outside, "backward", "bw_compiler", cut_outer=cut)
    assert ids(COMPILING, thread, hazards=(ON_ENGINE,)) == (["engine"] if found else [])


def test_threads_of_two_dumps_do_not_meet() -> None:
    assert ids(COMPILING, replace(LOWERING, dump=1)) == []


def test_the_innermost_frame_must_be_innermost() -> None:
    """A thread that is inside something that `run_backward` called does not wait there."""
    busy = replace(COMPILING, frames=(*COMPILING.frames, Frame("user_hook", "train.py", 9)))
    assert ids(busy, LOWERING) == []
    native = replace(COMPILING, frames=(*COMPILING.frames, Frame("pthread_cond_wait", "libc.so.6")))
    assert ids(native, LOWERING) == ["deadlock"]


def test_order_counts() -> None:
    assert ids(replace(COMPILING, frames=COMPILING.frames[::-1]), LOWERING) == []


def test_a_cut_stack_fits_but_not_for_certain() -> None:
    cut = replace(COMPILING, frames=COMPILING.frames[2:])
    assert ids(cut, LOWERING) == []
    (found,) = match(Dump((replace(cut, cut_outer=True), LOWERING)), [DEADLOCK])
    assert not found.certain
    assert "cut" in found.why
    almost_nothing = replace(cut, frames=cut.frames[-1:], cut_outer=True)
    assert ids(almost_nothing, LOWERING) == []


@pytest.mark.parametrize(
    ("pattern", "frame", "same"),
    [
        ("wait", Frame("Condition.wait", "threading.py", 1), True),
        ("Condition.wait", Frame("wait", "threading.py", 1), True),
        ("Condition.wait", Frame("Event.wait", "threading.py", 1), False),
        ("wait", Frame("await", "x.py", 1), False),
        ("forward", Frame("Outer.<locals>.forward", "x.py", 1), True),
        ("convert_frame.py:_compile", Frame("_compile", "C:/venv/torch/_dynamo/convert_frame.py", 1), True),
        ("_dynamo/convert_frame.py:_compile", Frame("_compile", "convert_frame.py", 1), True),
        ("convert_frame.py:_compile", Frame("_compile", "my_convert_frame.py", 1), False),
        ("a.py:f|g", Frame("g", "b.py", 1), True),
        ("a.py:f|g", Frame("f", "b.py", 1), False),
        ("Engine::thread_main", Frame("torch::autograd::Engine::thread_main(std::shared_ptr<T> const&)", "lib.so"), True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, frame: Frame, same: bool) -> None:
    assert matches(pattern, frame) is same


def test_no_pattern_fits_an_empty_stack() -> None:
    assert not fit(("f",), (), cut_outer=True, cut_inner=True).fits


def raised(message: str, *functions: str, kind: str = "RuntimeError", cut: bool = False) -> Dump:
    return Dump((), (Raised(kind, message, stack(*functions).frames, "drafter-1", cut),))


MESSAGE = "Detected that you are using FX to symbolically trace a dynamo-optimized function."


def test_a_message_is_enough_and_the_way_to_it_makes_it_certain() -> None:
    (found,) = match(raised(MESSAGE), [COLLISION, TLS])
    assert found.certain
    assert [role.thread for role in found.roles] == ['Thread "drafter-1"']
    (likely,) = match(raised(MESSAGE), [RECOMPUTE])
    assert not likely.certain
    assert match(raised("something else"), [COLLISION, RECOMPUTE, TLS]) == []


def test_the_way_to_it_excludes_too() -> None:
    assert match(raised(MESSAGE, "<module>", "compile_wrapper"), [RECOMPUTE]) == []


def test_the_more_specific_comes_first() -> None:
    found = match(raised(MESSAGE, "checkpoint.py:unpack_hook", "recompute_fn", "compile_wrapper"), [COLLISION, RECOMPUTE])
    assert [each.hazard.id for each in found] == ["recompute", "collision"]
    found = match(raised(MESSAGE), [RECOMPUTE, COLLISION])
    assert [each.hazard.id for each in found] == ["collision", "recompute"]


def test_a_bare_assertion_is_anybodys() -> None:
    assert match(raised("", kind="AssertionError"), [TLS]) == []
    assert match(raised("", "<module>", "check", kind="AssertionError"), [TLS]) == []
    (found,) = match(raised("", "cudagraph_trees.py:get_container", "get_obj", kind="AssertionError"), [TLS])
    assert found.certain


def test_nor_do_pythons_own_words_say_anything_without_the_way() -> None:
    message = "'NoneType' object is not a mapping"
    tuner = hazard("tuner", Signature(errors=(f"TypeError: {message}",), frames=("autotuner.py:run",)))
    assert match(raised(message, kind="TypeError"), [tuner]) == []
    assert match(raised(message, "autotuner.py:run", kind="TypeError"), [tuner])


def test_the_types_module_does_not_matter() -> None:
    own = hazard("own", Signature(errors=(r"^CheckpointError: other",)))
    assert match(raised("other metadata", kind="torch.utils.checkpoint.CheckpointError"), [own])
    assert match(raised("other metadata", kind="CheckpointError"), [own])


def test_a_message_without_its_type_and_without_any_form() -> None:
    text = f"hi, since today we see: {MESSAGE} any idea?"
    assert not parse(text)
    assert [found.hazard.id for found in match(bare(text), [COLLISION])] == ["collision"]
    assert match(bare("hi, since today it is slow"), [COLLISION, TLS]) == []


def test_what_this_torch_cannot_have_is_left_out() -> None:
    old = replace(COLLISION, versions="<2.12")
    assert match(raised(MESSAGE), [old], torch="2.11.0+cu130")
    assert match(raised(MESSAGE), [old], torch="2.13.0+cpu") == []
    assert match(raised(MESSAGE), [old])


def test_threads_that_were_tracing_are_named_as_a() -> None:
    tracer = stack("Tracer.trace", name="drafter-0")
    dump = raised(MESSAGE)
    dump = Dump((), (replace(dump.exceptions[0], meanwhile=(tracer,)),))
    (found,) = match(dump, [COLLISION])
    assert [(role.role, role.thread) for role in found.roles] == [("A", 'Thread "drafter-0"'), ("B", 'Thread "drafter-1"')]
