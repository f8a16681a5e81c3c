"""The FX flag again: a checkpoint calls compiled code in backward, where few expect a compiled call."""

from __future__ import annotations

from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.hazards.base import Hazard, Signature
from harness.hazards.fx_flag import MESSAGE, pipeline_case, program_case

_REPORTS = ("pytorch/pytorch#179614",)

_TRACED = Plan(
    {"B": "caller", "A": "tracer"},
    steps=[
        Step("B", "region.backward.enter"),
        Step("A", "region.step.enter"),
        Step("A", "fx.window.open"),
        Step("B", "compiled_call.enter", where="backward"),
        Step("B", "compiled_call.checked"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        steps=[
            Step("B", "region.backward.enter"),
            Step("A", "region.step.enter"),
            Step("A", "fx.window.open"),
            Step("A", "fx.window.closed", info="outermost"),
            Step("B", "compiled_call.enter", where="backward"),
        ],
    ),
)

_COMPILED = Plan(
    {"B": "drafter", "A": "drafter"},
    gates=[Gate("!B", "region.forward.enter", until="B is in backward")],
    steps=[
        Step("B", "region.backward.enter", name="B is in backward"),
        Step("A", "fx.window.open"),
        Step("B", "compiled_call.enter", where="backward"),
        Step("B", "compiled_call.checked", where="backward"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!B", "region.forward.enter", until="B is in backward")],
        steps=[
            Step("B", "region.backward.enter", name="B is in backward"),
            Step("A", "fx.window.open"),
            Step("A", "region.step.exit"),
            Step("B", "compiled_call.enter", where="backward"),
        ],
    ),
)


def _hazard(name: str, kind: str, frames: tuple[str, ...], found: dict[str, str]) -> Hazard:
    """`kind`: of the axis `checkpoint`; `frames`: on the way from backward to the compiled call."""
    words = kind.replace("_", "-")
    return Hazard(
        id=name,
        title=f"a recompute of compiled code in backward, {words}, while another thread traces",
        versions="<2.14",
        needs="cpu",
        window="A is inside an FX trace: up to 2.12 any compile is one, in 2.13 make_fx and symbolic_trace",
        access=f"B is in backward, where a {words} checkpoint calls the compiled region again, on a CUDA device on a thread of "
        "autograd's",
        effect='backward raises "Detected that you are using FX…"',
        remedy="A checkpoint around compiled code makes backward a compiled call: lock the backward of each first step too "
        "(first_step, not per_forward), or put the checkpoint inside what is compiled. Either kind of checkpoint fails.",
        signature=Signature(errors=(rf"RuntimeError: {MESSAGE}",), frames=(*frames, "eval_frame.py:compile_wrapper|_fn")),
        program=program_case(
            name, "make_fx meets the recompute of a checkpoint", "fx_flag:Recompute", _TRACED, checkpoint=kind
        ),
        pipeline=pipeline_case(
            name,
            "a drafter compiles, another is in backward and recomputes",
            _COMPILED,
            checkpoint=kind,
            shapes="per_drafter",
            steps=1,
        ),
        reference=_REPORTS,
        found=found,
    )


HAZARDS: tuple[Hazard, ...] = (
    _hazard(
        "recompute-collision",
        "non_reentrant",
        ("_engine_run_backward", "checkpoint.py:unpack_hook", "checkpoint.py:recompute_fn"),
        {"2.11": "5/5, counterfactual 0/5; pipeline 2/2, counterfactual 0/2", "2.13": "20/20, counterfactual 0/20"},
    ),
    _hazard(
        "recompute-collision-reentrant",
        "reentrant",
        ("_engine_run_backward", "checkpoint.py:backward"),
        {"2.11": "5/5, counterfactual 0/5; pipeline 2/2, counterfactual 0/2", "2.13": "20/20, counterfactual 0/20"},
    ),
)
