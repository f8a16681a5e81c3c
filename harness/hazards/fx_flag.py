"""One flag for all threads: a compiled callable that is called while another thread traces raises.

`fx-flag-collision` and its two variants differ in who opens the window: a compile or user code, a lazy backward lowering,
an operator that runs without a compile.
"""

from __future__ import annotations

from dataclasses import replace

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature

FX_ERROR = Effect(labels=("fx_error",))
MESSAGE = r"Detected that you are using FX to symbolically trace a dynamo-optimized function"
_REFUSED = Signature(errors=(rf"RuntimeError: {MESSAGE}",), frames=("eval_frame.py:compile_wrapper|eval_frame.py:_fn",))
_TRACE = "fx/_symbolic_trace.py:trace"
_LOWERS = replace(
    _REFUSED,
    tracer=(
        "runtime_wrappers.py:_backward_impl|runtime_wrappers.py:backward",
        "compile_fx.py:compile_fx_backward|compile_fx.py:bw_compiler|common.py:_wrapped_bw_compiler",
        _TRACE,
    ),
    unless=(_TRACE,),
)
_UNCOMPILED = replace(
    _REFUSED,
    tracer=("_ops.py:dispatch|_higher_order_ops/flex_attention.py:create_fw_bw_graph", _TRACE),
    unless=("convert_frame.py:_compile", "compile_fx.py:compile_fx", _TRACE),
)
_UNLOCKED = replace(
    _REFUSED,
    tracer=("convert_frame.py:_compile", _TRACE),
    unseen="whether the first steps run under a lock, and the thread that was refused had its own behind it",
)
_REPORTS = ("pytorch/pytorch#126024", "pytorch/pytorch#138282", "pytorch/pytorch#168999")


def program_case(name: str, title: str, workload: str, plan: Plan, effect: Effect = FX_ERROR, **axes: str | int) -> Case:
    """`workload`: module and class below `harness.subject.programs`."""
    scenario = {"workload": f"harness.subject.programs.{workload}", **axes}
    return Case(name, title, Scenario.from_dict(scenario), plan, effect)


def pipeline_case(name: str, title: str, plan: Plan, effect: Effect = FX_ERROR, **axes: str | int) -> Case:
    """Two drafters of the DFlash pipeline."""
    return Case(name, title, Scenario.from_dict({"drafters": 2, **axes}), plan, effect)


_TRACED = Plan(
    {"A": "tracer", "B": "caller"},
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=[
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked"),
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

_COMPILED = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=[
        Step("A", "compiled_call.enter"),
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked", info="true"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "compiled_call.enter", until="A is through")],
        steps=[
            Step("A", "fx.window.open"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "compiled_call.checked"),
        ],
    ),
)


def _lowered(a: str, b: str) -> Plan:
    """A lowers a backward graph for the first time; roles of these kinds."""
    return Plan(
        {"A": a, "B": b},
        gates=[Gate("!A", "compiled_call.enter", until="A traces")],
        steps=[
            Step("A", "backward_lowering.enter"),
            Step("A", "fx.window.open", name="A traces"),
            Step("B", "compiled_call.checked"),
            Step("A", "fx.window.closing"),
        ],
        counterfactual=Counterfactual(
            gates=[Gate("!A", "compiled_call.enter", until="A has lowered")],
            steps=[
                Step("A", "fx.window.open"),
                Step("A", "backward_lowering.exit", name="A has lowered"),
                Step("B", "compiled_call.checked"),
            ],
        ),
    )


_EAGER = Plan(
    {"A": "tracer", "B": "caller"},
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=[
        Step("A", "compile.exit", info="frame"),
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "compiled_call.enter", until="A is through")],
        steps=[
            Step("A", "compile.exit", info="frame"),
            Step("A", "fx.window.open"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "compiled_call.checked"),
        ],
    ),
)

_EAGER_IN_THE_PIPELINE = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "region.mask.enter", until="A traces")],
    steps=[
        Step("A", "flex_eager.enter"),
        Step("A", "compile.exit", info="frame"),
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked", where="mask"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "region.mask.enter", until="A is through")],
        steps=[
            Step("A", "flex_eager.enter"),
            Step("A", "fx.window.open"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "compiled_call.checked", where="mask"),
        ],
    ),
)

_HOLE = Plan(
    {"B": "drafter", "A": "drafter"},
    gates=[Gate("B", "compiled_call.enter", until="A traces")],
    steps=[
        Step("B", "region.step.exit"),
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked", info="true"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("B", "compiled_call.enter", until="A is through")],
        steps=[
            Step("B", "region.step.exit"),
            Step("A", "fx.window.open"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "compiled_call.checked"),
        ],
    ),
)

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="fx-flag-collision",
        title="a compiled call while another thread traces",
        versions="<2.14",
        needs="cpu",
        window="A is inside fx.Tracer.trace, which sets one flag for all threads: up to 2.12 in every compile, in 2.13 only "
        "outside of Dynamo's compiles (make_fx, symbolic_trace, and the two variants of this hazard)",
        access="B enters any compiled callable, which reads the flag",
        effect='B raises "Detected that you are using FX to symbolically trace a dynamo-optimized function"; A can fail a '
        "moment later too, for B ran through the nn.Module.__call__ that A's trace had patched",
        remedy="Let no thread call compiled code while another compiles or traces: compile everything on one thread before "
        "the others start, take steps that can compile one at a time (compile_gate; to be sure every_step), or give each "
        "drafter a process. From torch 2.14 the flag is one per thread.",
        signature=_REFUSED,
        program=program_case("fx-flag-collision", "make_fx meets a compiled call", "fx_flag:UserTrace", _TRACED),
        pipeline=pipeline_case("fx-flag-collision", "a drafter compiles, another calls", _COMPILED, steps=1),
        reference=_REPORTS,
        found={
            "2.11": "20/20, counterfactual 0/20; pipeline 20/20, counterfactual 0/20, and on an H200 the same",
            "2.13": "20/20, counterfactual 0/20; pipeline harmless, 1 of 1 (but see fx-flag-collision-eager)",
            "2.14": "harmless in 3 of 3, but nn.Module.__call__ stayed patched (patches-reapplied)",
        },
    ),
    Hazard(
        id="fx-flag-collision-backward",
        title="a compiled call while another thread's backward is lowered",
        versions="<2.14",
        needs="cpu",
        window="A takes the first backward of what inductor compiled. Its backward graph is lowered there, outside of "
        "Dynamo's compile, and where inductor rewrites it (two matrix products that are added) it traces the replacement",
        access="B enters any compiled callable, which reads the flag",
        effect="as fx-flag-collision; on 2.13 too, where a compile's own trace is hidden from other threads and this is not",
        remedy="Count the first backward as part of the first compile: a lock or a warm-up that ends with the forward is too "
        "short. Otherwise as for fx-flag-collision.",
        signature=_LOWERS,
        program=program_case(
            "fx-flag-collision-backward",
            "the first backward of a compiled function meets a compiled call",
            "fx_flag:LazyBackward",
            _lowered("tracer", "caller"),
        ),
        pipeline=pipeline_case(
            "fx-flag-collision-backward",
            "a drafter's first backward meets another's call (inductor, so on a CUDA device)",
            _lowered("drafter", "drafter"),
            compile="drafter",
            devices="cuda:0",
            steps=1,
        ),
        reference=_REPORTS,
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 20/20, counterfactual 0/10 (NVIDIA H200)",
            "2.13": "20/20, counterfactual 0/20",
        },
    ),
    Hazard(
        id="fx-flag-collision-eager",
        title="a compiled call while another thread runs flex_attention uncompiled",
        versions="<2.14",
        needs="cpu",
        window="A calls a higher-order operator (flex_attention, cond) without torch.compile and with gradient: it traces its "
        "joint graph at every call, outside of any compile and of the compile lock",
        access="B enters any compiled callable",
        effect="as fx-flag-collision, in every step and not only in the first, on 2.13 too. A dense fallback does it as well: "
        "past the recompile limit each such call is a new window",
        remedy="Compile attention in every thread, and see that it stays compiled: no recompile limit that is reached, "
        "dynamic shapes or few static ones. Uncompiled attention is no safe control experiment.",
        signature=_UNCOMPILED,
        program=program_case(
            "fx-flag-collision-eager", "uncompiled flex_attention meets a compiled call", "fx_flag:EagerFlex", _EAGER
        ),
        pipeline=pipeline_case(
            "fx-flag-collision-eager",
            "uncompiled attention meets a compiled mask builder",
            _EAGER_IN_THE_PIPELINE,
            compile="none",
            mask="compiled",
            steps=1,
        ),
        reference=(),
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 1/1, counterfactual 0/1",
            "2.13": "20/20, counterfactual 0/20; pipeline 1/1, counterfactual 0/1",
            "2.14": "harmless in the pipeline, 1 of 1",
        },
    ),
    Hazard(
        id="first-step-hole",
        title="a warm thread, no longer locked, meets another thread's first compile",
        versions="<2.13",
        needs="cpu",
        window="A is in its first step, under a lock from mask to backward, and compiles",
        access="B, whose own first step is done, calls compiled code without the lock",
        effect='B raises "Detected that you are using FX…" in spite of a lock around every whole first step',
        remedy="Let nobody go on until all are warm (warmup_barrier), or let a step that compiles exclude all others "
        "(compile_gate). It takes a second compile, so one static shape, one device and one code object for all avoid it too.",
        signature=_UNLOCKED,
        program=program_case(
            "first-step-hole",
            "two static shapes, a lock around each first step",
            "fx_flag:TwoShapes",
            _HOLE,
            lock="first_step",
        ),
        pipeline=pipeline_case(
            "first-step-hole",
            "a warm drafter meets another's first step",
            _HOLE,
            lock="first_step",
            shapes="per_drafter",
            steps=2,
        ),
        reference=(),
        found={
            "2.11": "20/20, counterfactual 0/20; pipeline 20/20, counterfactual 0/20, and on an H200 the same",
            "2.13": "does not come: a compile's own trace is hidden from other threads",
        },
    ),
)
