"""Compiles that come twice, come in spite of a warm-up, or are not counted; and uncompiled attention that traces."""

from __future__ import annotations

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature

_EFFECT = Effect(fact="effect")


def _program(name: str, title: str, workload: str, plan: Plan, effect: Effect = _EFFECT, **axes: str | int) -> Case:
    scenario = {"workload": f"harness.subject.programs.compiles:{workload}", **axes}
    return Case(name, title, Scenario.from_dict(scenario), plan, effect)


_CALLBACK = Plan(
    {"B": "trainer", "A": "compiler"},
    gates=[Gate("!B", "compiled_call.enter", until="B's forward is over")],
    steps=[
        Step("B", "mark.forward", name="B's forward is over"),
        Step("A", "compile.enter", info="graph"),
        Step("B", "backward_lowering.enter"),
        Step("B", "backward_lowering.exit"),
        Step("A", "compile.exit", info="graph"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!B", "compiled_call.enter", until="B is through")],
        steps=[
            Step("B", "backward_lowering.exit"),
            Step("B", "region.step.exit", name="B is through"),
            Step("A", "compile.enter", info="graph"),
        ],
    ),
)
_DUPLICATE = Plan(
    {"A": "caller", "B": "caller"},
    steps=[
        Step("A", "compile_lock.acquired"),
        Step("B", "compile_lock.wait"),
        Step("A", "compile.exit", info="frame"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "compiled_call.enter", until="A is through")],
        steps=[Step("A", "compile_lock.acquired"), Step("A", "region.step.exit", name="A is through")],
    ),
)
_LOOKUP = Plan(
    {"A": "caller", "B": "caller"},
    gates=[Gate("!A", "region.step.enter", until="A looks")],
    steps=[
        Step("A", "mark.first_entry", name="A looks"),
        Step("B", "mark.called"),
        Step("A", "mark.compare"),
        Step("A", "mark.called"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "region.step.enter", until="A is through")],
        steps=[
            Step("A", "region.step.enter"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "mark.called"),
        ],
    ),
)
_PATCHERS = Plan(
    {"A": "caller", "B": "caller"},
    steps=[
        Step("A", "compiled_call.enter"),  # both have read the FX-tracing flag before either sets it
        Step("B", "compiled_call.checked", info="false"),
        Step("A", "compiled_call.checked", info="false"),
        Step("A", "fx.window.open"),
        Step("B", "fx.window.closing"),
        Step("B", "fx.window.closed", info="outermost"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "region.step.enter", until="A is through")],
        steps=[
            Step("A", "region.step.enter"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "region.step.exit"),
        ],
    ),
)


def _of_drafters(plan: Plan) -> Plan:
    """The same with two drafters of the pipeline."""
    return Plan(dict.fromkeys(plan.roles, "drafter"), plan.gates, plan.steps, plan.counterfactual)


def _watched(name: str, title: str, plan: Plan, fact: str, **axes: str | int) -> Case:
    """In the pipeline with a backend that counts."""
    scenario = {"workload": "harness.subject.programs.pipeline_watch:Watched", "drafters": 2, "steps": 1, **axes}
    return Case(name, title, Scenario.from_dict(scenario), plan, Effect(fact=fact))


HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="lost-compile-callback",
        title="a compile beside another thread's calls no callback",
        versions=">=2.8",
        needs="cpu",
        window="A is in a compile (Dynamo's, or the lazy one of a backward): one counter for all threads is above zero",
        access="B begins a compile of the other kind",
        effect="neither start nor end callback (torch._dynamo.callback) is called for B's: tools that count compiles by them "
        "count too few",
        remedy="Count at the backend, which is called for each graph (wrap it), or let threads compile one at a time.",
        signature=Signature(),
        program=_program("lost-compile-callback", "a compile meets a lazy backward", "Callbacks", _CALLBACK),
        elsewhere="no part of the pipeline listens to these callbacks; the harness counts at the backend for this reason",
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
    Hazard(
        id="duplicate-compile",
        title="threads that meet one cold function compile it once each",
        versions="",
        needs="cpu",
        window="A compiles a function for the first time, holding torch's compile lock",
        access="B has called it too, found nothing compiled, and waits for that lock",
        effect="B compiles it again once it has the lock: N threads, up to N graphs; all but one count towards the recompile "
        "limit for nothing",
        remedy="Call every compiled function once, with gradients and on each device, before the workers start "
        "(warm-up main_grad or per_device), or let one worker take its first step alone (warmup_barrier).",
        signature=Signature(),
        program=_program("duplicate-compile", "two callers, one cold function", "Cold", _DUPLICATE),
        pipeline=_watched(
            "duplicate-compile", "two drafters, one cold attention", _of_drafters(_DUPLICATE), "compiled_by_two"
        ),
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 2/2, counterfactual 0/2",
            "2.13": "20/20, counterfactual 0/20; pipeline 2/2, counterfactual 0/2",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="no-grad-warmup",
        title="a warm-up under no_grad does not serve training",
        versions="",
        needs="cpu",
        window="compiled code is guarded on the grad mode: a graph for no_grad serves no call with gradients, and has no "
        "backward",
        access="",
        effect="every worker compiles after all in its first step, with all that follows from that",
        remedy="Warm up as the workers will train: with gradients, a backward, the same device, shapes and modes.",
        signature=Signature(),
        program=_program(
            "no-grad-warmup", "a warm-up without gradients", "Warmed",
            Plan(counterfactual=Counterfactual(axes={"warmup": "main_grad"})), warmup="main_no_grad",
        ),
        pipeline=_watched(
            "no-grad-warmup", "a warm-up without gradients",
            Plan(counterfactual=Counterfactual(axes={"warmup": "main_grad"})), "compiled_in_workers",
            warmup="main_no_grad", lock="every_step",
        ),
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 2/2, counterfactual 0/2",
            "2.13": "20/20, counterfactual 0/20; pipeline 2/2, counterfactual 0/2",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
    Hazard(
        id="backend-match-recompile",
        title="a warm call finds nothing in the cache, for another thread moved the entry, and compiles again",
        versions="",
        needs="cpu",
        window="A looks for its entry in the cache of a code object, which is a list, and is at the first one: it compares the "
        "backend, in Python where they are not one object, and evaluates the guards; both let other threads run",
        access="B finds the entry that A looks for, further back, and so moves it to the front, where A has been already",
        effect='A compiles again though everything is warm; up to 2.11 the reason is given as "BACKEND_MATCH failure"',
        remedy="Give each thread a code object of its own (a copy of the function), so that nobody else moves entries of its "
        "cache; or let one thread at a time take steps (lock every_step). One entry is no danger: it takes two, as with the "
        "forward without gradients and the recompute with them of a reentrant checkpoint.",
        signature=Signature(),
        program=_program("backend-match-recompile", "two lookups of one entry", "Lookup", _LOOKUP, warmup="main_grad"),
        elsewhere="it occurs there by chance (docs/findings.md: reentrant checkpoint, a torch.compile for each drafter), but "
        "torch compares its own wrappers in a lookup, where no sync point lies; the small program's backend says it itself",
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="eager-flex-unsafe",
        title="uncompiled flex_attention with gradients in two threads",
        versions="",
        needs="cpu",
        window="A calls flex_attention without torch.compile: with gradients it traces its joint graph at each call, and so "
        "patches nn.Module for all threads",
        access="B does the same, and they leave in another order than they came",
        effect='AssertionError "CURRENT_PATCHER is None in finally block"; nn.Module.__call__ stays patched for the rest of '
        "the process",
        remedy="Compile attention, and see that it stays compiled (no dense fallback), or hold one lock around every "
        "uncompiled call.",
        signature=Signature(
            errors=(r"AssertionError: CURRENT_PATCHER is None",),
            # Compiled, the function itself is not on the stack: its graph calls the operator.
            frames=(
                "nn/attention/flex_attention.py:flex_attention",
                "create_fw_bw_graph",
                "_symbolic_trace.py:trace",
                "_symbolic_trace.py:_new_patcher",
            ),
        ),
        program=_program(
            "eager-flex-unsafe", "two uncompiled calls interleave", "EagerAttention", _PATCHERS,
            Effect(labels=("graph_corrupt", "state_leak")), warmup="main_grad",
        ),
        pipeline=Case(
            "eager-flex-unsafe", "two drafters call attention uncompiled",
            Scenario.from_dict({"compile": "none", "warmup": "main_grad", "drafters": 2, "steps": 1}),
            _of_drafters(_PATCHERS), Effect(labels=("graph_corrupt", "state_leak")),
        ),
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 2/2, counterfactual 0/2",
            "2.13": "20/20, counterfactual 0/20; pipeline 2/2, counterfactual 0/2",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
)
