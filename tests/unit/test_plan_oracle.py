"""Which hazards' plans a bisection asks about."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_runs import FakeExecutor, make_row
from slots import Slots

from harness.analysis.ladder import PlanResult
from harness.analysis.plan_questions import Ask
from harness.control import plan_oracle
from harness.control.bisect_question import Question
from harness.control.plan_answers import PLANS, append_plan, read_plans
from harness.control.plan_oracle import ReproducingOracle, _fits, oracle_for
from harness.control.request import Row, TrialRequest
from harness.core.scenario import Scenario
from harness.hazards import find

PER_DRAFTER = Scenario(shapes="per_drafter", drafters=2, steps=1)
WITH_CHECKPOINT = Scenario(checkpoint="non_reentrant", lock_owner="thread", devices="cuda:0")


@pytest.mark.parametrize(
    ("needed", "asked", "fits"),
    [
        (PER_DRAFTER, Scenario(shapes="per_drafter"), True),
        (PER_DRAFTER, Scenario(), False),
        (PER_DRAFTER, Scenario(devices="cuda:0+cuda:1"), True),  # each device compiles for itself
        (PER_DRAFTER, Scenario(devices="cuda:0+cuda:1/cuda:2"), False),  # all drafters on one
        (WITH_CHECKPOINT, Scenario(checkpoint="non_reentrant", devices="cuda:0+cuda:1"), True),
        (WITH_CHECKPOINT, Scenario(checkpoint="non_reentrant", devices="hosted:0"), True),
        (WITH_CHECKPOINT, Scenario(checkpoint="non_reentrant"), False),  # the CPU has no thread of autograd's
        (WITH_CHECKPOINT, Scenario(checkpoint="reentrant", devices="cuda:0"), False),
        (Scenario(workload="harness.subject.programs.pipeline_masks:Masks"), Scenario(), False),
        (Scenario(dynamo="nested_trace_allowed"), Scenario(), False),
    ],
)
def test_a_plan_is_asked_about_where_the_scenario_has_what_it_needs(
    needed: Scenario, asked: Scenario, fits: bool
) -> None:
    assert _fits(needed, asked) is fits


@pytest.mark.parametrize(
    ("needs", "devices", "asked"),
    [
        ("cpu", "cpu", True),
        ("cuda", "cpu", False),
        ("cuda", "cuda:0", True),
        ("cuda x2", "cuda:0", False),
        ("cuda x2", "cuda:0+cuda:1", True),
        ("cuda x2", "cuda:0/cuda:1", True),
    ],
)
def test_a_plan_is_asked_about_where_there_are_the_devices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needs: str, devices: str, asked: bool
) -> None:
    """A machine of two GPUs; a scenario may leave one idle."""
    hazard = dataclasses.replace(find("fx-flag-collision"), needs=needs)
    assert hazard.pipeline is not None
    monkeypatch.setattr(plan_oracle, "HAZARDS", (hazard,))
    context = hazard.pipeline.scenario.replace(devices=devices)
    environment = {"torch": "2.11.0+cu130", "gpus": [{}, {}], "variables": {}}
    question = Question("locks", "t", (context,), ("none",))
    oracle = oracle_for(question, environment, FakeExecutor(), tmp_path, lambda text: None)
    assert bool(oracle.hazards()) is asked


def test_no_case_of_another_workload_is_put_onto_the_pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hazard = find("fx-flag-collision")
    monkeypatch.setattr(plan_oracle, "HAZARDS", (dataclasses.replace(hazard, pipeline=hazard.program),))
    assert hazard.program.scenario.workload != "dflash"
    environment = {"torch": "2.11.0", "gpus": [], "variables": {}}
    question = Question("locks", "t", (Scenario(),), ("none",))
    assert oracle_for(question, environment, FakeExecutor(), tmp_path, lambda text: None).hazards() == ()


def test_plans_run_side_by_side_and_each_answer_comes_when_it_is_there(tmp_path: Path) -> None:
    """Under per_call it comes about at once; under compile_gate all bindings of two drafters are excluded."""
    case = find("fx-flag-collision").case("pipeline")
    assert case is not None

    def outcome(request: TrialRequest) -> Row:
        ran = request.scenario.lock == "per_call"
        told = {"order": "completed" if ran else "excluded", "reason": "", "attempts": []}
        workers = {name: {"role": "drafter"} for name in ("drafter-0", "drafter-1")}
        return make_row(request, "fx_error" if ran else "ok", schedule=told, workers=workers)

    slots = Slots(4, outcome)
    notes: list[str] = []
    context = Scenario(drafters=2)
    oracle = ReproducingOracle({"h": case}, [context], {}, slots, tmp_path, note=notes.append, timeout_s=9)
    answers = oracle.ask([Ask("h", "per_call"), Ask("h", "compile_gate")])
    first = next(answers)
    assert len(slots.started) == 2, "it waits for no other"
    assert (first.strategy, first.ending, first.trials) == ("per_call", "reproduced", 1)
    assert first.witness is not None
    assert (tmp_path / first.witness["trial"]).is_dir()
    [second] = answers
    assert (second.strategy, second.ending, second.trials) == ("compile_gate", "excluded", 3)
    assert slots.beside[0] == ("h--per_call/001-plan", "h--compile_gate/001-plan")
    assert slots.beside[2] == ("h--compile_gate/002-plan", "h--compile_gate/003-plan")
    assert notes == ["plan of h under per_call: reproduced", "plan of h under compile_gate: excluded"]


STACKS = """Thread 0x7f0645 (most recent call first):
  File "torch/autograd/graph.py", line 869 in _engine_run_backward
  File "torch/_higher_order_ops/flex_attention.py", line 600 in create_fw_bw_graph
  File "torch/_dynamo/convert_frame.py", line 1600 in _compile

Thread 0x7f0637 (most recent call first):
  File "torch/_inductor/compile_fx.py", line 2418 in compile_fx_backward
  File "torch/_functorch/_aot_autograd/runtime_wrappers.py", line 2889 in _backward_impl
"""


def failing(request: TrialRequest, at: str, label: str) -> Row:
    """No plan of anybody comes about; the strategy fails by itself in trials called so."""
    told = {"order": "excluded", "reason": "a lock", "attempts": []}
    workers = {name: {"role": "drafter"} for name in ("drafter-0", "drafter-1")}
    (request.folder / "stacks.txt").write_text(STACKS)
    return make_row(request, label if request.trial_id.endswith(at) else "ok", schedule=told, workers=workers)


@pytest.mark.parametrize(
    ("at", "label", "trials", "by_lock"), [("001-plan", "deadlock", 1, True), ("002-plan", "fx_error", 2, False)]
)
def test_a_failure_beside_the_plan_s_order_ends_the_search_and_is_a_witness(
    tmp_path: Path, at: str, label: str, trials: int, by_lock: bool
) -> None:
    """Seen on an H200: seven bindings of a plan were tried, six of which ended in torch's own deadlock."""
    case = find("cudagraph-tls").case("pipeline")  # whose effect is neither
    assert case is not None
    slots = Slots(1, lambda request: failing(request, at, label))
    context = Scenario(drafters=2)
    oracle = ReproducingOracle({"h": case}, [context], {}, slots, tmp_path, note=lambda _: None, timeout_s=9)
    [told] = oracle.ask([Ask("h", "per_forward")])
    assert (told.ending, told.trials, told.by_lock, told.failed) == ("undecided", trials, by_lock, True)
    assert told.witness is not None
    assert (told.witness["plan"], told.witness["label"], "hazard" in told.witness) == ("h", label, False)
    assert (tmp_path / told.witness["trial"]).is_dir()
    assert told.witness["trial"].endswith(at)
    assert told.witness["known_as"] == "compile-lock-engine-deadlock"


def test_a_strategy_s_failure_ends_the_search_of_its_other_plans_and_excludes_nothing(tmp_path: Path) -> None:
    cases = {name: find("cudagraph-tls").case("pipeline") for name in ("one", "other")}
    assert cases["one"] is not None
    slots = Slots(2, lambda request: failing(request, "one--per_call/001-plan", "fx_error"))
    oracle = ReproducingOracle(
        {name: case for name, case in cases.items() if case},
        [Scenario(drafters=2)],
        {},
        slots,
        tmp_path,
        note=lambda _: None,
        timeout_s=9,
    )
    found = {told.hazard: told for told in oracle.ask([Ask("one", "per_call"), Ask("other", "per_call")])}
    assert len(slots.started) == 2
    assert (found["one"].failed, found["other"].failed) == (True, False)
    assert found["other"].ending == "undecided", "its other bindings were not tried"
    assert "while the plan of one was tried" in found["other"].reason


def test_a_hang_in_a_trial_of_a_plan_is_no_failure_of_the_strategy(tmp_path: Path) -> None:
    case = find("cudagraph-tls").case("pipeline")
    assert case is not None
    slots = Slots(1, lambda request: failing(request, "001-plan", "hang"))
    oracle = ReproducingOracle(
        {"h": case}, [Scenario(drafters=2)], {}, slots, tmp_path, note=lambda _: None, timeout_s=9
    )
    [told] = oracle.ask([Ask("h", "per_call")])
    assert (told.ending, told.failed, told.trials) == ("excluded", False, 3)


def asked(
    folder: Path, executor: Slots, *hazards: str, contexts: tuple[Scenario, ...] = (Scenario(drafters=2),)
) -> Iterator[PlanResult]:
    case = find("cudagraph-tls").case("pipeline")
    assert case is not None
    cases = dict.fromkeys(hazards, case)
    oracle = ReproducingOracle(cases, contexts, {}, executor, folder, note=lambda _: None, timeout_s=9)
    return oracle.ask([Ask(hazard, "per_call") for hazard in hazards])


def test_a_failure_is_told_before_what_was_stopped_for_its_sake(tmp_path: Path) -> None:
    """Else a kill between the two leaves an answer for good, and no failure."""
    slots = Slots(2, lambda request: failing(request, "one--per_call/001-plan", "fx_error"))
    assert [told.hazard for told in asked(tmp_path, slots, "other", "one")] == ["one", "other"]


def test_a_failure_that_was_seen_is_told_though_ctrl_c_ends_the_rest(tmp_path: Path) -> None:
    def outcome(request: TrialRequest) -> Row:
        if request.trial_id == "003-plan":
            raise KeyboardInterrupt
        return failing(request, "002-plan", "fx_error")

    told: list[PlanResult] = []
    with pytest.raises(KeyboardInterrupt):
        told.extend(asked(tmp_path, Slots(2, outcome), "h"))  # what comes before the interrupt stays
    assert [(one.hazard, one.ending, one.failed) for one in told] == [("h", "undecided", True)]
    assert told[0].trials >= 2


@pytest.mark.parametrize(
    ("outcome", "order", "ending"),
    [
        ("out_of_memory", "", "undecided"),
        ("ok", "completed", "harmless"),
        ("ok", "unreachable", "unreachable"),
        ("ok", "excluded", "excluded"),
    ],
)
def test_nothing_is_excluded_unless_it_is_in_every_scenario(
    tmp_path: Path, outcome: str, order: str, ending: str
) -> None:
    def of(request: TrialRequest) -> Row:
        second = request.scenario.steps == 3
        told = {"order": order if second else "excluded", "reason": "a lock", "attempts": []}
        workers = {name: {"role": "drafter"} for name in ("drafter-0", "drafter-1")}
        return make_row(request, outcome if second else "ok", schedule=told, workers=workers)

    contexts = (Scenario(drafters=2), Scenario(drafters=2, steps=3))
    [told] = asked(tmp_path, Slots(1, of), "h", contexts=contexts)
    assert told.ending == ending


def test_scenarios_with_warm_caches_have_no_plans(tmp_path: Path) -> None:
    """A plan's trial has cold ones, and what then happens need not with warm ones."""
    hazard = find("fx-flag-collision")
    assert hazard.pipeline is not None
    environment = {"torch": "2.11.0", "gpus": [], "variables": {}}
    for cache, some in (("cold", True), ("warm", False)):
        context = hazard.pipeline.scenario.replace(cache=cache)
        question = Question("locks", "t", (context,), ("none",))
        oracle = oracle_for(question, environment, FakeExecutor(), tmp_path, lambda text: None)
        assert bool(oracle.hazards()) is some


def test_answers_are_added_behind_a_line_that_was_cut(tmp_path: Path) -> None:
    append_plan(tmp_path, PlanResult("a", "none", "excluded"))
    with open(tmp_path / PLANS, "a") as stream:
        stream.write('{"hazard": "b", "str')
    append_plan(tmp_path, PlanResult("c", "none", "excluded"))
    assert [told.hazard for told in read_plans(tmp_path)] == ["a", "c"]
