"""State that belongs to all threads and is saved and put back, or shown, by one: generators, defaults, flags, the stance."""

from __future__ import annotations

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature

_EFFECT = Effect(fact="effect")


def _program(name: str, title: str, workload: str, plan: Plan, **axes: str | int) -> Case:
    scenario = {"workload": f"harness.subject.programs.global_state:{workload}", **axes}
    return Case(name, title, Scenario.from_dict(scenario), plan, _EFFECT)


def _during_a_compile(role: str, deed: list[Step], after: str) -> Plan:
    """`role` does its deed between A's saving and A's putting back; B comes to `after` once A is through."""
    return Plan(
        {"A": "compiler", "B": role},
        steps=[
            Step("A", "globals.saved", info="frame"),
            *deed,
            Step("A", "globals.restoring", info="frame"),
            Step("A", "mark.compiled"),
            Step("B", after),
        ],
        counterfactual=Counterfactual(
            steps=[Step("A", "globals.saved", info="frame"), Step("A", "mark.compiled"), *deed],
        ),
    )


_REWIND = _during_a_compile("drawer", [Step("B", "mark.draw"), Step("B", "mark.drew")], "mark.draw")
_REWIND_IN_PIPELINE = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "queue.get", until="A compiles")],
    steps=[
        Step("A", "globals.saved", info="frame", name="A compiles"),
        Step("B", "queue.get"),  # and then its anchors, before its step begins
        Step("A", "globals.restoring", info="frame"),
        Step("A", "region.step.exit"),
        Step("B", "region.step.enter"),
        Step("B", "queue.get"),
        Step("B", "region.step.enter"),
        Step("A", "queue.get"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "queue.get", until="A is through")],
        steps=[
            Step("A", "globals.saved", info="frame"),
            Step("A", "region.step.exit", name="A is through"),
            Step("B", "queue.get"),
            Step("B", "region.step.enter", nth=2),
        ],
    ),
)
_REVERT = _during_a_compile("setter", [Step("B", "mark.set")], "mark.was_set")
_LEAK = Plan(
    {"A": "compiler", "B": "trainer"},
    steps=[
        Step("A", "compile.enter", info="graph"),
        Step("B", "mark.step"),
        Step("B", "mark.stepped"),
        Step("A", "compile.exit", info="graph"),
    ],
    counterfactual=Counterfactual(
        steps=[Step("A", "compile.enter", info="graph"), Step("A", "mark.compiled"), Step("B", "mark.step")]
    ),
)
_LEAK_IN_PIPELINE = Plan(
    {"B": "drafter", "A": "drafter"},
    gates=[Gate("!B", "region.step.enter", until="B has gradients")],
    steps=[
        Step("B", "region.backward.exit", name="B has gradients"),
        Step("A", "compile.enter", info="graph"),
        Step("B", "region.step.exit"),
        Step("B", "is_compiling.read", info="true"),
        Step("A", "compile.exit", info="graph"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!B", "region.step.enter", until="B is through")],
        steps=[
            Step("B", "region.step.exit"),
            Step("B", "queue.get", name="B is through"),  # after its optimizer step
            Step("A", "compile.enter", info="graph"),
        ],
    ),
)
_RECOMPUTE = Plan(
    {"A": "trainer", "B": "drawer"},
    steps=[
        Step("A", "mark.forward"),
        Step("A", "globals.saved", info="fork_rng"),  # and then to the recompute's own draw, where it is held
        Step("B", "rng.draw"),
        Step("A", "rng.draw"),
    ],
    counterfactual=Counterfactual(
        steps=[Step("A", "mark.forward"), Step("A", "region.step.exit"), Step("B", "rng.draw")],
    ),
)
_STANCE = Plan(
    {"A": "setter", "B": "caller"},
    gates=[Gate("!A", "compiled_call.enter", until="A has set it")],
    steps=[
        Step("A", "stance.set", info="force_eager", name="A has set it"),
        Step("B", "mark.call"),
        Step("B", "mark.called"),
        Step("A", "mark.leave"),
    ],
    counterfactual=Counterfactual(
        steps=[Step("A", "stance.set", info="force_eager"), Step("A", "mark.left"), Step("B", "mark.call")]
    ),
)

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="rng-rewind",
        title="a compile sets the random generators of all threads back",
        versions="",
        needs="cpu",
        window="A compiles, a lazy backward too: the state of torch's generators and of Python's random is saved and, at its "
        "end, put back",
        access="B draws from one of them meanwhile",
        effect="B draws the same numbers again: anchors, dropout, noise that repeat, without an error",
        remedy="Give each thread a generator of its own (torch.Generator, random.Random) for all that it draws; NumPy's is "
        "not touched. Or keep draws and compiles apart with a lock.",
        signature=Signature(),
        program=_program("rng-rewind", "a compile meets two draws", "Drawing", _REWIND),
        pipeline=Case(
            "rng-rewind", "anchors are drawn from the process-wide generator while another drafter compiles",
            Scenario.from_dict({
                "workload": "harness.subject.programs.pipeline_watch:SharedGenerator", "drafters": 2, "steps": 2,
            }),
            _REWIND_IN_PIPELINE, Effect(labels=("state_leak",), text="it was put back"),
        ),
        elsewhere="the pipeline as it is draws from generators of its own only (anchors, weights, the order of documents) and "
        "has no dropout, so it cannot happen there: the case for it gives the drafters torch's process-wide generator",
        found={
            "2.11": "5/5, counterfactual 0/5; pipeline 20/20, counterfactual 0/20",
            "2.13": "20/20, counterfactual 0/20; pipeline 1/1, counterfactual 0/1",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="checkpoint-rng-rewind",
        title="a checkpoint's recompute and another thread draw from one generator",
        versions="",
        needs="cpu",
        window="A recomputes under either kind of checkpoint with preserve_rng_state: it has set the process-wide CPU "
        "generator to its forward's state and has not drawn yet",
        access="B draws",
        effect="A's recompute drops other units than its forward did: wrong gradients, no error. B draws numbers that were "
        "drawn before",
        remedy="Draw dropout's mask from a generator of the thread's own and pass it into the checkpoint, or hold one lock "
        "around every backward that recomputes and around every draw. preserve_rng_state=False only helps where nothing "
        "inside draws.",
        signature=Signature(),
        program=_program("checkpoint-rng-rewind", "a recompute of dropout meets a draw", "Recompute", _RECOMPUTE),
        elsewhere="nothing inside the pipeline's checkpoints draws, and nothing beside them draws from the process-wide "
        "generator",
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
    Hazard(
        id="globals-reverted",
        title="a compile undoes what another thread sets",
        versions="",
        needs="cpu",
        window="A compiles: default dtype, deterministic algorithms, seed, fp32 precision and bf16-reduction flags are saved "
        "and, at its end, put back",
        access="B sets one of them meanwhile (manual_seed, set_default_dtype, use_deterministic_algorithms)",
        effect="what B set is undone without a word; a default dtype can stay wrong for good. Set "
        "after A has put its own back and before it checks its guards, it is A's compile that fails (seen on 2.11)",
        remedy="Set them all on the main thread before any worker starts; in a worker pass dtype and generator explicitly.",
        signature=Signature(
            errors=(r"(?s)AssertionError: Guard failed on the same frame it was created\..*GLOBAL_STATE changed",)
        ),
        program=_program("globals-reverted", "a compile meets three setters", "Settings", _REVERT),
        elsewhere="no thread of the pipeline sets any of them",
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "3/3, counterfactual 0/3",
        },
    ),
    Hazard(
        id="compiling-leak",
        title="is_compiling() is True in a thread that compiles nothing",
        versions=">=2.13",
        needs="cpu",
        window="A compiles: torch.compiler.is_compiling() answers True in the whole process",
        access="B asks it, itself or inside an eager optimizer step",
        effect="B takes the branch that is meant for traced code. A step of AdamW inside the compile as a whole gives other "
        "weights (by 2e-6 after three steps), without an error. A foreach step in which the compile begins or ends takes "
        "something of both branches and raises TypeError: in Adam, AdamW, NAdam, RAdam and Adagrad, and in Adamax either way. "
        "By then the weights may have decayed and the moments moved",
        remedy="Hold one lock around every compile and every optimizer step, so keep the step inside what excludes compiles; "
        "or use fused=True, which asks nothing, or at least foreach=False, which does not raise. In code of your own ask "
        "torch.compiler.is_dynamo_compiling().",
        signature=Signature(
            errors=(
                r"TypeError: expected Tensor as element \d+ in argument \d+, but got float",
                r"TypeError: _foreach_\w+\(\) received an invalid combination of arguments",
            ),
            frames=(
                "|".join(
                    f"optim/{name}.py:_multi_tensor_{name}" for name in ("adam", "nadam", "radam", "adamax", "adagrad")
                ),
            ),
        ),
        program=_program("compiling-leak", "a compile meets an optimizer step", "OptimizerStep", _LEAK),
        pipeline=Case(
            "compiling-leak", "a drafter's optimizer step meets another's compile",
            Scenario.from_dict({
                "workload": "harness.subject.programs.pipeline_watch:Watched",
                "drafters": 2, "steps": 1, "shapes": "per_drafter",
            }),
            _LEAK_IN_PIPELINE, Effect(fact="optimizer_saw_compile"),
        ),
        found={
            "2.11": "0/5: harmless",
            "2.13": "20/20, counterfactual 0/20; pipeline 2/2, counterfactual 0/2",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
    Hazard(
        id="stance-leak",
        title="a stance set in one thread holds in all",
        versions="",
        needs="cpu",
        window="A is inside torch.compiler.set_stance(…)",
        access="B calls a compiled function",
        effect='B runs as the stance of A says: uncompiled under "force_eager", with no guards at all under '
        "skip_guard_eval_unsafe",
        remedy="Set a stance before any worker starts and leave it. For one function use torch.compiler.disable or call the "
        "uncompiled original.",
        signature=Signature(),
        program=_program("stance-leak", "force_eager meets a compiled call", "Stance", _STANCE),
        elsewhere="nothing in the pipeline sets a stance",
        reference=("pytorch/pytorch#196637",),
        found={
            "2.11": "5/5, counterfactual 0/5",
            "2.13": "20/20, counterfactual 0/20",
            "2.14": "2/2, counterfactual 0/2",
        },
    ),
)
