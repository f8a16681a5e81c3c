"""What an FX trace or a graph capture changes for the whole process besides its flag: `nn.Module`, and node annotations."""

from __future__ import annotations

from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.hazards.base import Hazard, Signature
from harness.hazards.fx_flag import pipeline_case, program_case

_EFFECT = Effect(fact="effect")
_CORRUPT = Effect(labels=("graph_corrupt",))

_INTERLEAVED = Plan(
    {"A": "first", "B": "second"},
    steps=[
        Step("A", "fx.window.open"),
        Step("B", "mark.begin"),
        Step("B", "fx.window.open"),
        Step("A", "fx.window.closing"),
        Step("A", "fx.window.closed", info="outermost"),
        Step("B", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        steps=[
            Step("A", "fx.window.open"),
            Step("A", "fx.window.closed", info="outermost"),
            Step("B", "mark.begin"),
            Step("B", "fx.window.open"),
        ],
    ),
)

_INTERLEAVED_IN_THE_PIPELINE = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "region.forward.enter", until="A traces")],
    steps=[
        Step("A", "flex_eager.enter"),
        Step("A", "compile.exit", info="frame"),
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "fx.window.open"),
        Step("A", "fx.window.closing"),
        Step("A", "fx.window.closed", info="outermost"),
        Step("B", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "region.forward.enter", until="A is through")],
        steps=[
            Step("A", "fx.window.open"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "fx.window.open"),
        ],
    ),
)

_REAPPLIED = Plan(
    {"B": "caller", "A": "tracer"},
    steps=[
        Step("B", "compiled_call.checked"),
        Step("A", "region.step.enter"),
        Step("A", "fx.window.open"),
        Step("B", "compile.enter", info="frame"),
        Step("B", "globals.saved", info="frame"),
        Step("A", "fx.window.closing"),
        Step("A", "fx.window.closed", info="outermost"),
        Step("B", "globals.restoring", info="frame"),
    ],
    counterfactual=Counterfactual(
        steps=[
            Step("B", "compiled_call.checked"),
            Step("A", "region.step.enter"),
            Step("A", "fx.window.open"),
            Step("A", "fx.window.closed", info="outermost"),
            Step("B", "compile.enter", info="frame"),
            Step("B", "globals.restoring", info="frame"),
        ],
    ),
)

_REAPPLIED_IN_THE_PIPELINE = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "region.mask.enter", until="A has compiled")],
    steps=[
        Step("A", "flex_eager.enter"),
        Step("A", "compile.exit", info="frame", name="A has compiled"),
        Step("B", "compiled_call.checked", where="mask"),
        Step("A", "fx.window.open"),
        Step("B", "compile.enter", info="frame"),
        Step("B", "globals.saved", info="frame"),
        Step("A", "fx.window.closing"),
        Step("A", "fx.window.closed", info="outermost"),
        Step("B", "globals.restoring", info="frame"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "region.mask.enter", until="A is through")],
        steps=[
            Step("A", "fx.window.open"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "compile.enter", info="frame"),
            Step("B", "globals.restoring", info="frame"),
        ],
    ),
)

_CALLED = Plan(
    {"A": "tracer", "B": "caller"},
    steps=[Step("A", "fx.window.open"), Step("B", "mark.calling"), Step("A", "fx.window.closing")],
    counterfactual=Counterfactual(
        steps=[
            Step("A", "fx.window.open"),
            Step("A", "fx.window.closed", info="outermost"),
            Step("B", "mark.calling"),
            Step("B", "mark.called"),
        ],
    ),
)

# The joint trace's call of the engine lies inside `preserve_node_meta`, where the window's ends do not.
_MASKED = Plan(
    {"A": "compiler", "B": "masker"},
    steps=[
        Step("A", "engine.enter"),
        Step("B", "mark.begin"),
        Step("B", "mark.sorting"),
        Step("A", "engine.exit"),
        Step("A", "compile_lock.released"),
        Step("B", "mark.sorted"),
    ],
    counterfactual=Counterfactual(
        steps=[
            Step("A", "engine.enter"),
            Step("A", "compile_lock.released"),
            Step("B", "mark.begin"),
            Step("B", "mark.sorting"),
            Step("B", "mark.sorted"),
        ],
    ),
)

_MASKED_IN_THE_PIPELINE = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "region.mask.enter", until="A captures")],
    steps=[
        Step("A", "engine.enter", where="forward", name="A captures"),
        Step("B", "mark.sorting"),
        Step("A", "engine.exit"),
        Step("A", "compile_lock.released"),
        Step("B", "mark.sorted"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "region.mask.enter", until="A is through")],
        steps=[
            Step("A", "engine.enter", where="forward"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "mark.sorting"),
            Step("B", "mark.sorted"),
        ],
    ),
)

_SYMBOLIC = (
    "the pipeline never runs symbolic_trace; the tracer of make_fx, which its compiles use, passes module calls of other "
    "threads through"
)

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="fx-flag-stuck",
        title="two traces interleave, and what they changed stays changed",
        versions="",
        needs="cpu",
        window="A is inside an FX trace: it has saved the flag and patched nn.Module",
        access="B begins a trace, and ends it after A has ended its own",
        effect="B raises \"CURRENT_PATCHER is None in finally block\", nn.Module.__call__ stays that of A's trace, and up to "
        "2.13 the flag stays set: from then on every compiled call of the process raises, though nobody traces",
        remedy="Let one thread trace at a time: a lock of your own around make_fx and symbolic_trace, and no uncompiled "
        "flex_attention or cond with gradient in two threads. Two compiles cannot do it, for the compile lock is between "
        "them. A process in which it happened has to be restarted.",
        signature=Signature(
            errors=(r"AssertionError: CURRENT_PATCHER is None in finally block",),
            frames=("_symbolic_trace.py:trace", "_symbolic_trace.py:_new_patcher"),
        ),
        program=program_case(
            "fx-flag-stuck", "two traces, each ending after the other began", "fx_flag:TwoTraces", _INTERLEAVED, _EFFECT
        ),
        pipeline=pipeline_case(
            "fx-flag-stuck",
            "uncompiled attention with gradient in two drafters",
            _INTERLEAVED_IN_THE_PIPELINE,
            Effect(labels=("graph_corrupt", "state_leak")),
            compile="none",
            steps=1,
        ),
        reference=("pytorch/pytorch#168042", "pytorch/pytorch#189884"),
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 1/1, counterfactual 0/1",
            "2.13": "20/20, counterfactual 0/20; pipeline 1/1, counterfactual 0/1",
            "2.14": "3/3, counterfactual 0/3, nn.Module only, not the flag; pipeline 1/1, counterfactual 0/1",
        },
    ),
    Hazard(
        id="patches-reapplied",
        title="a compile puts the patches of another thread's trace back after that has ended",
        versions="",
        needs="cpu",
        window="B, past its check of the flag (from 2.14 on in any case), compiles: it takes back the patches of the trace "
        "that goes on, whoever's it is, and puts them in place again when it has done",
        access="A's trace ends meanwhile",
        effect="nn.Module.__call__ stays that of A's ended trace for the rest of the process, without any error at the time",
        remedy="Let no thread run make_fx, symbolic_trace or an uncompiled flex_attention with gradient while another "
        "compiles; to see whether it has happened, compare torch.nn.Module.__call__ with what it was at the start.",
        signature=Signature(),
        program=program_case(
            "patches-reapplied", "make_fx ends within another thread's compile", "fx_flag:LeftBehind", _REAPPLIED, _EFFECT
        ),
        pipeline=pipeline_case(
            "patches-reapplied",
            "uncompiled attention's trace ends within the compile of a mask builder",
            _REAPPLIED_IN_THE_PIPELINE,
            Effect(labels=("state_leak",), text="nn.Module.__call__"),
            compile="none",
            mask="compiled",
            shapes="per_drafter",
            steps=1,
        ),
        found={
            "2.11": "1/1, counterfactual 0/1",
            "2.13": "20/20, counterfactual 0/20; pipeline 1/1, counterfactual 0/1",
            "2.14": "1/1, counterfactual 0/1",
        },
    ),
    Hazard(
        id="module-call-under-trace",
        title="an uncompiled module is called while another thread traces symbolically",
        versions="",
        needs="cpu",
        window="A is inside symbolic_trace, which patches nn.Module.__call__ for all threads",
        access="B calls an nn.Module of its own, compiled nowhere",
        effect='B raises NameError "module is not installed as a submodule"',
        remedy="Run symbolic_trace (and what uses it: quantisation, graph passes) before the threads start, or under a lock "
        "that every thread holds while it calls modules. torch calls concurrent symbolic traces unsupported.",
        signature=Signature(
            errors=(r"NameError: module is not installed as a submodule",),
            frames=("_symbolic_trace.py:module_call_wrapper",),
        ),
        program=program_case(
            "module-call-under-trace", "symbolic_trace meets a module call", "fx_globals:ModuleCall", _CALLED, _CORRUPT
        ),
        elsewhere=_SYMBOLIC,
        reference=("pytorch/pytorch#187589",),
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="module-call-under-trace-silent",
        title="a shared module is called while another thread traces the model it belongs to",
        versions="",
        needs="cpu",
        window="A is inside symbolic_trace of a model",
        access="B calls a module that belongs to that model",
        effect="B's call is written into A's graph and B gets a proxy for a result: the graph is wrong, and nothing says so",
        remedy="As for module-call-under-trace; a model that other threads use must not be traced, a copy of it can be only "
        "while they call no module at all.",
        signature=Signature(),
        program=program_case(
            "module-call-under-trace-silent",
            "symbolic_trace meets a call of the traced model's own part",
            "fx_globals:SharedModuleCall",
            _CALLED,
            _EFFECT,
        ),
        elsewhere=_SYMBOLIC,
        reference=("pytorch/pytorch#187589",),
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="annotate-collision",
        title="a block mask is built while another thread compiles",
        versions=">=2.13",
        needs="cpu",
        window="A captures a graph, and has kept a copy of the process-wide dictionary of node annotations, which it puts in "
        "place when it has done",
        access="B is in plain create_block_mask, which writes an annotation into that dictionary around a sort and removes it "
        "afterwards, from what A has put there meanwhile",
        effect="B raises KeyError: 'custom' out of torch.fx.traceback.annotate",
        remedy="Build masks where nobody compiles: hold the lock of the first step around mask building too (a lock around "
        "attention is too short), let compiling steps exclude all others (compile_gate), or build masks without "
        "create_block_mask.",
        signature=Signature(
            errors=(r"KeyError: 'custom'",),
            frames=("flex_attention.py:create_block_mask", "fx/traceback.py:annotate"),
        ),
        program=program_case(
            "annotate-collision", "a compile meets create_block_mask", "fx_globals:MaskBuilding", _MASKED, _CORRUPT
        ),
        pipeline=pipeline_case(
            "annotate-collision",
            "a drafter compiles, another builds its mask",
            _MASKED_IN_THE_PIPELINE,
            _CORRUPT,
            workload="harness.subject.programs.pipeline_masks:MarkedMasks",
            steps=1,
        ),
        found={
            "2.13": "20/20, counterfactual 0/20; pipeline 1/1, counterfactual 0/1",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
)
