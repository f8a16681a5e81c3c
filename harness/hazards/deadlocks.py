"""Threads that wait for each other for good: a lock of the user's or of the strategy against torch's own waits."""

from __future__ import annotations

from harness.core.axes import HOSTED
from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import ENGINE, Hazard, Signature, ThreadPattern

_DEADLOCK = Effect(labels=("deadlock",))
_IN_COMPILE_LOCK = Effect(labels=("deadlock",), text="torch's compile lock")
_IN_STRATEGY_LOCK = Effect(labels=("deadlock",), text="the strategy lock")  # the other deadlock can come in its place


def _program(
    name: str, title: str, workload: str, plan: Plan, effect: Effect = _DEADLOCK, **axes: str | int
) -> Case:
    scenario = Scenario.from_dict({"workload": f"harness.subject.programs.deadlocks:{workload}", **axes})
    return Case(name, title, scenario, plan, effect)


_INVERSION = Plan(
    {"A": "compiler", "B": "holder"},
    steps=[Step("A", "compile.enter", info="graph"), Step("B", "mark.locked"), Step("A", "mark.backend")],
    counterfactual=Counterfactual(
        steps=[Step("A", "compile.enter", info="graph"), Step("A", "compile_lock.released"), Step("B", "mark.begin")],
    ),
)

_BARRIER = Plan(
    {"A": "drafter", "B": "drafter"},
    steps=[Step("A", "region.step.enter"), Step("B", "strategy_lock.wait"), Step("A", "barrier.wait")],
    counterfactual=Counterfactual(settings={"barrier": "outside"}),
)

def _compile_lock(trainer: str, attender: str, gate: str) -> Plan:
    """Roles of these kinds; everybody but B is held at `gate` until B is in its first backward."""
    return Plan(
        {"B": trainer, "A": attender},
        gates=[Gate("!B", gate, until="B is in backward")],
        steps=[
            Step("B", "engine.enter", where="backward", name="B is in backward"),
            Step("A", "compile_lock.acquired"),
            Step("B", "backward_lowering.enter"),
            Step("B", "compile_lock.wait"),
            Step("A", "engine.enter"),
        ],
        counterfactual=Counterfactual(
            gates=[Gate("!B", gate, until="B is through")],
            steps=[
                Step("B", "engine.enter", where="backward"),
                Step("B", "region.step.exit", name="B is through"),
                Step("A", "compile_lock.acquired"),
                Step("A", "engine.enter"),
            ],
        ),
    )


_RECOMPUTE = Plan(
    {"A": "drafter"},
    steps=[Step("A", "engine.enter", where="backward"), Step("A", "strategy_lock.wait")],
    counterfactual=Counterfactual(axes={"lock_owner": "worker"}),
)

_RECOMPUTE_IN_THE_PIPELINE = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "region.forward.enter", until="A is in backward")],
    steps=[
        Step("A", "region.backward.enter", name="A is in backward"),
        Step("B", "strategy_lock.acquired"),
        Step("A", "engine.enter", where="backward"),
        Step("A", "strategy_lock.wait"),
        Step("B", "engine.enter"),
    ],
    counterfactual=Counterfactual(axes={"lock_owner": "worker"}),
)

_COMPILES = ("convert_frame.py:_compile", "output_graph.py:call_user_compiler")
_A_LOCK = "locks.py:acquire|reported.py:acquire|lock.py:acquire|locking.py:acquire|<lock>"

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="user-lock-inversion",
        title="a user's lock is taken inside a compile, and held around one",
        versions="",
        needs="cpu",
        window="A compiles, so it holds torch's compile lock, and wants a user's lock in its backend or in a callback",
        access="B holds that lock and calls something that must be compiled",
        effect="both wait for good",
        remedy="Take no lock of your own in a backend, a pass or a compile callback; or hold none while you call compiled "
        "code. Where you need both, every thread takes yours first, before the compiled call.",
        signature=Signature(
            threads=(
                ThreadPattern("A", "compiles and waits for a user's lock in its backend", (*_COMPILES, _A_LOCK)),
                ThreadPattern(
                    "B", "waits for torch's compile lock", ("eval_frame.py:compile_wrapper|_fn", "convert_frame.py:__call__$")
                ),
            ),
        ),
        program=_program(
            "user-lock-inversion", "a lock in a backend, and around a compiled call", "LockInBackend", _INVERSION
        ),
        elsewhere="the pipeline has no backend, pass or callback of its own, and takes its locks outside of any compile",
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="replica-barrier-deadlock",
        title="replicas meet at a barrier inside what a lock holds exclusive",
        versions="",
        needs="cpu",
        window="A waits at a barrier of all replicas, inside its locked region",
        access="B waits for the lock, on its way to that barrier",
        effect="both wait for good",
        remedy="Keep barriers, all-reduces and the averaging of gradients outside of what the lock holds: after the step.",
        signature=Signature(),  # a dump does not tell who holds a lock, and to wait at a barrier is no fault
        program=_program(
            "replica-barrier-deadlock", "a barrier inside a locked step", "BarrierInLock", _BARRIER, lock="every_step"
        ),
        elsewhere="the pipeline averages gradients after the step, where no strategy holds a lock",
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="compile-lock-engine-deadlock",
        title="a compile of flex_attention waits for autograd, and autograd for the compile",
        versions=">=2.6",
        needs=ENGINE,
        window="A compiles flex_attention with gradient: it holds torch's compile lock, and the operator's own joint trace "
        "calls autograd, which needs the thread of device D",
        access="B's backward runs on that thread, and its backward graph is lowered at its first use, for which inductor waits "
        "for the compile lock",
        effect="both wait for good, and with them every thread that compiles or runs a backward on D",
        remedy="No first backward while another thread compiles: hold a lock over whole first steps and let nobody go on "
        "before all are done (warmup_barrier, compile_gate), or warm everything up on one thread, with gradient.",
        signature=Signature(
            threads=(
                ThreadPattern(
                    "A",
                    "compiles flex_attention, so it holds torch's compile lock, and waits for autograd's device thread",
                    ("convert_frame.py:_compile", "flex_attention.py:create_fw_bw_graph", "graph.py:_engine_run_backward$"),
                ),
                ThreadPattern(
                    "B",
                    "lowers a backward graph on autograd's device thread and waits for the compile lock",
                    ("runtime_wrappers.py:_backward_impl|runtime_wrappers.py:backward", "compile_fx.py:compile_fx_backward$"),
                    engine=True,
                ),
            ),
        ),
        program=_program(
            "compile-lock-engine-deadlock",
            "a first backward meets a compile of flex_attention",
            "CompileLockAndEngine",
            _compile_lock("trainer", "attender", "compiled_call.enter"),
            _IN_COMPILE_LOCK,
            devices=HOSTED,
        ),
        pipeline=Case(
            "compile-lock-engine-deadlock",
            "a drafter's first backward meets another's first forward",
            Scenario(devices=HOSTED, drafters=2, shapes="per_drafter", steps=1),
            _compile_lock("drafter", "drafter", "region.forward.enter"),
            _IN_COMPILE_LOCK,
        ),
        found={
            "2.11": "20/20, counterfactual 0/20; in the pipeline 20/20, counterfactual 0/20 (NVIDIA H200)",
            "2.13": "20/20, counterfactual 0/20; in the pipeline 20/20, counterfactual 0/20 (hosted:0, no GPU)",
            "2.14": "3/3, counterfactual 0/3; in the pipeline 3/3, counterfactual 0/3 (hosted:0, no GPU)",
        },
    ),
    Hazard(
        id="user-lock-engine-deadlock",
        title="a lock that the OS thread owns is wanted again by a recompute on autograd's thread",
        versions="",
        needs=ENGINE,
        window="A, or another drafter, holds a lock that belongs to its OS thread (a threading.RLock, a thread-local flag "
        '"I am warm") and waits for autograd',
        access="A's checkpoint recomputes on autograd's device thread, which owns no lock and is not warm, and enters the "
        "locked region there",
        effect="both wait for good; with a lock that holds attention and backward a single drafter is enough",
        remedy="Let the worker own the lock, not the thread: a strategy of make_strategy(…) in harness.locks belongs to the "
        "worker that its regions name, unless owner=\"thread\" is asked for, and so lets the recompute of a worker that is "
        "inside its own region pass. Or put no lock into what a checkpoint runs again.",
        signature=Signature(
            threads=(
                ThreadPattern("A", "waits for autograd's device thread", ("graph.py:_engine_run_backward$",)),
                ThreadPattern(
                    "B",
                    "recomputes a checkpoint on autograd's device thread and waits for a lock there",
                    ("checkpoint.py:unpack_hook|checkpoint.py:recompute_fn|checkpoint.py:backward", _A_LOCK),
                    engine=True,
                ),
            ),
        ),
        program=_program(
            "user-lock-engine-deadlock",
            "one drafter, a lock in attention and in backward, a checkpoint around the attention",
            "LockedRecompute",
            _RECOMPUTE,
            _IN_STRATEGY_LOCK,
            devices=HOSTED,
            lock="each:attention+backward",
            lock_owner="thread",
            checkpoint="non_reentrant",
        ),
        pipeline=Case(
            "user-lock-engine-deadlock",
            "per_call as people paste it: a recompute meets another drafter's first call",
            Scenario(
                devices=HOSTED,
                drafters=2,
                shapes="per_drafter",
                lock="per_call",
                lock_owner="thread",
                checkpoint="non_reentrant",
                steps=1,
            ),
            _RECOMPUTE_IN_THE_PIPELINE,
            _IN_STRATEGY_LOCK,
        ),
        found={
            "2.11": "20/20, counterfactual 0/20; in the pipeline 20/20, counterfactual 0/20 (NVIDIA H200)",
            "2.13": "20/20, counterfactual 0/20; in the pipeline 20/20, counterfactual 0/20 (hosted:0, no GPU)",
            "2.14": "3/3, counterfactual 0/3; in the pipeline 3/3, counterfactual 0/3 (hosted:0, no GPU)",
        },
    ),
)
