"""A checkpoint runs its function twice, and what it runs the second time need not be the same."""

from __future__ import annotations

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature


def _program(name: str, title: str, workload: str, plan: Plan, effect: Effect, **axes: str | int) -> Case:
    scenario = {"workload": f"harness.subject.programs.checkpoints:{workload}", **axes}
    return Case(name, title, Scenario.from_dict(scenario), plan, effect)


_MIXED = Plan(
    {"A": "trainer", "B": "setter"},
    steps=[
        Step("A", "mark.forward"),
        Step("B", "mark.setting"),  # held here, for at stance.set the stance is set already
        Step("B", "stance.set", info="force_eager"),
        Step("A", "engine.enter"),
        Step("A", "mark.backward"),
        Step("B", "mark.leave"),
    ],
    counterfactual=Counterfactual(
        steps=[Step("A", "mark.forward"), Step("A", "mark.backward"), Step("B", "mark.setting"), Step("B", "mark.leave")]
    ),
)
_MIXED_IN_PIPELINE = Plan(
    {"B": "drafter", "A": "drafter"},
    gates=[Gate("!B", "region.step.enter", until="B's forward is over")],
    steps=[
        Step("B", "region.backward.enter", name="B's forward is over"),
        Step("A", "fx.window.open"),
        Step("B", "engine.enter"),
        Step("B", "compiled_call.checked", info="true"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!B", "region.step.enter", until="B is through")],
        steps=[Step("B", "region.step.exit", name="B is through"), Step("A", "fx.window.open")],
    ),
)
_OTHER = Plan(
    {"A": "trainer", "B": "caller"},
    gates=[Gate("!A", "compiled_call.enter", until="A's forward is over")],
    steps=[
        Step("A", "compiled_call.enter"),
        Step("B", "mark.call"),
        Step("A", "mark.forward", name="A's forward is over"),
        Step("B", "mark.called"),
        Step("A", "compiled_call.enter"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "compiled_call.enter", until="A is through")],
        steps=[
            Step("A", "mark.forward"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "mark.called"),
        ],
    ),
)

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="checkpoint-mixed",
        title="a checkpoint's forward ran compiled, its recompute eager",
        versions="",
        needs="cpu",
        window="A is between the forward of a non-reentrant checkpoint around compiled code and its recompute",
        access="B changes what compiled calls do: it sets a stance, resets Dynamo with the recompile limit reached, or (up to "
        "2.13, with error_on_nested_fx_trace off) traces",
        effect="the recompute keeps other tensors, or the same in another order: CheckpointError, or wrong gradients without "
        "one (a compiled product a·b gives a and b each the other's gradient)",
        remedy="Set stances and settings before any worker starts, leave error_on_nested_fx_trace on, and give the cache "
        "room. A reentrant checkpoint recomputes the whole graph and is right with either.",
        signature=Signature(
            errors=(
                r"CheckpointError: torch\.utils\.checkpoint: A different number of tensors was saved",
                r"CheckpointError: torch\.utils\.checkpoint: Recomputed values for the following tensors have different",
            ),
            frames=("unpack_hook|check_recomputed_tensors_match",),
        ),
        program=_program(
            "checkpoint-mixed", "force_eager between forward and recompute", "Mixed", _MIXED, Effect(fact="effect")
        ),
        pipeline=Case(
            "checkpoint-mixed", "a recompute meets another drafter's compile, nested traces allowed",
            Scenario.from_dict({
                "checkpoint": "non_reentrant", "shapes": "per_drafter", "dynamo": "nested_trace_allowed",
                "drafters": 2, "steps": 1,
            }),
            _MIXED_IN_PIPELINE, Effect(labels=("error",), text="torch.utils.checkpoint"),
        ),
        reference=("unslothai/unsloth-zoo#1001",),
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 2/2, counterfactual 0/2",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="recompute-other-graph",
        title="a checkpoint's recompute finds another graph than its forward",
        versions="",
        needs="cpu",
        window="A is between the forward of a non-reentrant checkpoint, which ran the graph for its own length, and its "
        "recompute",
        access="B calls the same compiled function with another length: a graph for any length is compiled, and found first "
        "from then on",
        effect='CheckpointError in A\'s backward: "Recomputed values … have different metadata"',
        remedy="Compile with dynamic=False (a graph a length) or dynamic=True from the start, or give each thread a code "
        "object of its own.",
        signature=Signature(
            errors=(
                r"CheckpointError: torch\.utils\.checkpoint: Recomputed values for the following tensors have different",
            ),
            frames=("check_recomputed_tensors_match",),
        ),
        program=_program(
            "recompute-other-graph", "another length between forward and recompute", "OtherGraph", _OTHER,
            Effect(labels=("error",), text="different metadata than during the forward pass"),
        ),
        elsewhere="tried there with dynamic = \"auto\" (torch 2.11 and 2.13): the order comes about and the recompute runs the "
        "other graph, but compiled attention keeps the same shapes in both, as do whole layers (2.13), so it is harmless",
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
    Hazard(
        id="reentrant-kwargs",
        title="a reentrant checkpoint sees no tensor that is given by keyword",
        versions="",
        needs="cpu",
        window="a reentrant checkpoint looks at the tensors that it is given by position: if none of them requires a gradient, "
        "its result does not either, whatever is bound by keyword (functools.partial, a module's **kwargs)",
        access="",
        effect="the parameters inside get no gradient; a residual around the checkpoint lets backward pass, so there is no "
        "error, only a warning. No race at all, but taken for one",
        remedy="Give the checkpoint every tensor that needs a gradient by position, or use use_reentrant=False. After the "
        "first backward, look for trainable parameters whose gradient is None.",
        signature=Signature(),
        program=_program(
            "reentrant-kwargs", "the hidden states by keyword", "Keywords",
            Plan(counterfactual=Counterfactual(settings={"hidden": "by_position"})), Effect(labels=("no_grad",)),
        ),
        elsewhere="the pipeline gives its checkpoints everything by position, for this reason; a step that leaves a parameter "
        "without gradient would be the outcome no_grad",
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
)
