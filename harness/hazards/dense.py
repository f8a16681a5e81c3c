"""Compiled attention that runs uncompiled (dense, slow, numerically close) and says nothing; and settings that stay wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature

_EFFECT = Effect(fact="effect")
_DENSE = Effect(labels=("dense",))


def _program(name: str, title: str, workload: str, plan: Plan, effect: Effect = _EFFECT, **axes: str | int) -> Case:
    scenario = {"workload": f"harness.subject.programs.dense:{workload}", **axes}
    return Case(name, title, Scenario.from_dict(scenario), plan, effect)


def _pipeline(name: str, title: str, plan: Plan, settings: Mapping[str, Any] | None = None, **axes: str | int) -> Case:
    return Case(name, title, Scenario.from_dict(dict(axes)), plan, _DENSE, settings or {})


_CURE = Plan(
    {"A": "tracer", "B": "caller"},
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=[
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked"),
        Step("B", "region.step.exit"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "compiled_call.enter", until="A has traced")],
        steps=[
            Step("A", "fx.window.open"),
            Step("A", "fx.window.closed", info="outermost", name="A has traced"),
            Step("B", "compiled_call.checked"),
        ],
    ),
)
_CURE_IN_PIPELINE = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=[
        Step("A", "compiled_call.enter"),
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "compiled_call.enter", until="A is through")],
        steps=[Step("A", "fx.window.open"), Step("A", "region.step.exit", name="A is through")],
    ),
)
_WARNING = Plan(
    {"A": "compiler", "B": "caller"},
    steps=[
        Step("A", "compile.enter", info="graph"),
        Step("B", "mark.call"),
        Step("B", "is_compiling.read", info="true"),
        Step("A", "compile.exit", info="graph"),
    ],
    counterfactual=Counterfactual(
        steps=[Step("A", "compile.enter", info="graph"), Step("A", "mark.compiled"), Step("B", "mark.call")],
    ),
)
_LIMITS = Plan(
    {"A": "caller", "B": "caller"},
    steps=[
        Step("A", "flex_eager.enter"),
        Step("B", "flex_eager.enter"),
        Step("A", "flex_eager.exit"),
        Step("B", "flex_eager.exit"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "region.step.enter", until="A is through")],
        steps=[
            Step("A", "region.step.enter"),
            Step("A", "flex_eager.exit"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "flex_eager.exit"),
        ],
    ),
)

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="dense-by-config",
        title="error_on_nested_fx_trace = False turns the FX error into dense attention",
        versions="<2.14",
        needs="cpu",
        window="A is inside fx.Tracer.trace (up to 2.11 in any compile, later by make_fx and its like), and the setting "
        "error_on_nested_fx_trace is off",
        access="B calls compiled attention",
        effect="B runs uncompiled: dense, slower, close in its numbers, so unseen. One project measured 21.6 % longer steps",
        remedy="Leave error_on_nested_fx_trace on and keep traces and compiled calls apart (lock compile_gate or "
        "every_step); the error is the better sign.",
        signature=Signature(),
        program=_program(
            "dense-by-config", "make_fx meets compiled attention", "Cure", _CURE, _DENSE, dynamo="nested_trace_allowed"
        ),
        pipeline=_pipeline(
            "dense-by-config", "a drafter compiles, another calls", _CURE_IN_PIPELINE,
            dynamo="nested_trace_allowed", drafters=2, steps=1,
        ),
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 2/2, counterfactual 0/2",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "0/2: harmless",
        },
    ),
    Hazard(
        id="dense-by-thread-config",
        title="a recompile limit that is raised on the main thread does not hold in workers",
        versions=">=2.12",
        needs="cpu",
        window="the main thread sets torch._dynamo.config.recompile_limit; since 2.12 Dynamo's configuration is a context "
        "variable, and a thread starts with the defaults",
        access="",
        effect="a worker meets the limit of 8 and from then on runs what is new uncompiled, with one line in the log",
        remedy="Set it in each worker, or start the worker by contextvars.copy_context().run, or pass recompile_limit to "
        "torch.compile where it takes that (2.13 does). On CUDA, by source, autograd's device threads need it too.",
        signature=Signature(),
        program=_program(
            "dense-by-thread-config", "ten lengths under a limit that is 64 in main", "ManyLengths",
            Plan(counterfactual=Counterfactual(settings={"limit": "by_worker"})), dynamo="limit_in_main",
        ),
        pipeline=_pipeline(
            "dense-by-thread-config", "nine lengths under a limit that is 64 in main",
            Plan(counterfactual=Counterfactual(axes={"shapes": "fixed"})), {"tokens": 176},
            dynamo="limit_in_main", drafters=9, shapes="per_drafter", lock="every_step", steps=1,
        ),
        reference=("pytorch/pytorch#186537", "pytorch/pytorch#173568"),
        found={
            "2.11": "0/5: harmless",
            "2.13": "20/20, counterfactual 0/20; pipeline 1/1, counterfactual 0/1",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
    Hazard(
        id="dense-by-recompile-limit",
        title="drafters share one code object's cache and exceed the recompile limit",
        versions="",
        needs="cpu",
        window="compiled code hangs on the code object: devices × static shapes × grad modes of all threads count towards "
        "one limit of 8, however often torch.compile was called",
        access="",
        effect="what comes ninth runs uncompiled, in every thread and for good, with one line in the log",
        remedy="Give each drafter a code object of its own (a copy of the function), compile with dynamic shapes, or raise "
        "recompile_limit, from 2.12 on in every thread.",
        signature=Signature(),
        program=_program(
            "dense-by-recompile-limit", "two drafters, five lengths each", "SharedCache",
            Plan(counterfactual=Counterfactual(axes={"code": "each"})),
        ),
        pipeline=_pipeline(
            "dense-by-recompile-limit", "nine drafters, a length each",
            Plan(counterfactual=Counterfactual(axes={"code": "each"})), {"tokens": 176},
            drafters=9, shapes="per_drafter", lock="every_step", steps=1,
        ),
        reference=("vllm-project/vllm#27178",),
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 1/1, counterfactual 0/1",
            "2.13": "20/20, counterfactual 0/20; pipeline 1/1, counterfactual 0/1",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
    Hazard(
        id="lost-dense-warning",
        title="the only warning of dense attention is lost to another thread's compile",
        versions=">=2.13",
        needs="cpu",
        window="A compiles: torch.compiler.is_compiling() answers True in the whole process",
        access='B calls attention uncompiled for the first time in the process: the "called without torch.compile" warning '
        "is noted as shown, and not shown",
        effect="nobody is ever warned that attention runs dense",
        remedy="Do not count on the warning: watch for dense calls (harness run does), or call uncompiled attention once on "
        "the main thread before the workers start, to see that the warning works.",
        signature=Signature(),
        program=_program("lost-dense-warning", "a compile meets uncompiled attention", "Warned", _WARNING),
        elsewhere="it takes uncompiled attention beside a compile of other code: in the pipeline attention is what is "
        "compiled, and the warning is no outcome of a trial",
        found={
            "2.11": "0/5: excluded",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
    Hazard(
        id="limits-stuck",
        title="two eager higher-order operators leave the recompile limits at their maximum",
        versions="<2.12",
        needs="cpu",
        window="A calls flex_attention or cond uncompiled: it saves Dynamo's recompile limits, lifts them, and puts the saved "
        "ones back",
        access="B does the same and saves what A has set",
        effect="the limits stay lifted for the whole process: a function that recompiles at each call does so for ever",
        remedy="Never call flex_attention or cond uncompiled in two threads at once, or set the limits again afterwards.",
        signature=Signature(),
        program=_program("limits-stuck", "two eager calls interleave", "EagerPair", _LIMITS),
        pipeline=Case(
            "limits-stuck", "two drafters call attention uncompiled",
            Scenario.from_dict({"compile": "none", "drafters": 2, "steps": 1}),
            Plan(
                {"A": "drafter", "B": "drafter"},
                steps=_LIMITS.steps,
                counterfactual=Counterfactual(axes={"lock": "every_step"}),
            ),
            Effect(labels=("state_leak",), text="Dynamo's settings"),
        ),
        found={
            "2.11": "20/20, counterfactual 0/20; pipeline 1/1, counterfactual 0/1",
            "2.13": "0/5: harmless",
            "2.14": "0/2: harmless",
        },
    ),
)
