"""CUDA graphs, and the autotuning of kernels, in more than one thread. All need a CUDA device."""

from __future__ import annotations

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature

_POOL = Effect(labels=("cudagraph_pool", "cudagraph_overwritten", "capture_invalidated", "cuda_fault", "crash", "error"))


def _program(name: str, title: str, workload: str, plan: Plan, effect: Effect) -> Case:
    scenario = Scenario(workload=f"harness.subject.programs.cuda_graphs:{workload}", devices="cuda:0")
    return Case(name, title, scenario, plan, effect)


_SECOND_THREAD = Plan(
    {"A": "first", "B": "second"},
    gates=[Gate("!A", "compiled_call.enter", until="A is through")],
    steps=[Step("A", "region.step.exit", name="A is through"), Step("B", "compiled_call.checked")],
    counterfactual=Counterfactual(settings={"threads": "one"}),
)

_SECOND_DRAFTER = Plan(
    {"A": "drafter", "B": "drafter"},
    gates=[Gate("!A", "region.mask.enter", until="A is through")],
    steps=[Step("A", "region.step.exit", name="A is through"), Step("B", "compiled_call.checked")],
    counterfactual=Counterfactual(axes={"cudagraphs": "off"}),
)

_IN_CAPTURE = Plan(
    {"A": "recorder", "B": "caller"},
    steps=[
        Step("A", "mark.recording", nth=2),  # the first time warms up, the second is captured
        Step("B", "mark.begin"),
        Step("B", "region.step.exit"),
        Step("A", "mark.recorded"),
    ],
    counterfactual=Counterfactual(
        steps=[
            Step("A", "mark.recording", nth=2),
            Step("A", "region.step.exit"),
            Step("B", "mark.begin"),
            Step("B", "region.step.exit"),
        ],
    ),
)

# The graph is shared: the first drafter's call warmed it up, the second drafter's, in its locked first step, records it.
_BEFORE_CAPTURE = Plan(
    {"B": "drafter", "A": "drafter"},
    gates=[Gate("B", "compiled_call.enter", until="A records")],
    steps=[
        Step("B", "region.step.exit"),
        Step("A", "cudagraph.record.enter", info="trees", name="A records"),
        Step("B", "region.attention.exit"),
        Step("A", "cudagraph.record.enter", info="capture"),
    ],
    # Not `every_step`: the order does not come about there, but 3 of 20 such trials ended otherwise (docs/findings.md).
    counterfactual=Counterfactual(axes={"cudagraphs": "off"}),
)

_OVERWRITTEN = Plan(
    {"A": "reader", "B": "caller"},
    steps=[
        Step("A", "mark.has"),
        Step("B", "mark.begin"),
        Step("B", "region.step.exit"),
        Step("A", "mark.reads"),
    ],
    counterfactual=Counterfactual(
        steps=[
            Step("A", "mark.has"),
            Step("A", "mark.has_read"),
            Step("B", "mark.begin"),
            Step("B", "region.step.exit"),
        ],
    ),
)

_CAPTURED = Plan(
    {"A": "capturer", "B": "worker"},
    steps=[
        Step("A", "mark.capturing"),
        Step("B", "mark.begin"),
        Step("B", "region.step.exit"),
        Step("A", "mark.ending"),
    ],
    counterfactual=Counterfactual(
        steps=[
            Step("A", "mark.capturing"),
            Step("A", "region.step.exit"),
            Step("B", "mark.begin"),
            Step("B", "region.step.exit"),
        ],
    ),
)

_TUNED = Plan(
    {"A": "first", "B": "second"},
    steps=[
        Step("A", "mark.benchmarking"),
        Step("B", "mark.begin"),
        Step("B", "region.step.exit"),
        Step("A", "mark.goes_on"),
    ],
    counterfactual=Counterfactual(
        steps=[
            Step("A", "mark.benchmarking"),
            Step("A", "region.step.exit"),
            Step("B", "mark.begin"),
            Step("B", "region.step.exit"),
        ],
    ),
)

_TUNING_ERROR = "'NoneType' object is not a mapping"

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="cudagraph-tls",
        title="CUDA-graph trees are set up in one thread and wanted in another",
        versions="<2.13",
        needs="cuda",
        window="A was the first to compile with mode=\"reduce-overhead\": torch keeps its CUDA-graph trees in storage of the "
        "thread that imported them",
        access="B, another thread that autograd did not start, runs a graph of its own for the first time",
        effect="a bare AssertionError out of torch/_inductor/cudagraph_trees.py in B, in every step; no lock cures it",
        remedy="Run everything that uses CUDA-graph trees in one thread for each process (a drafter a process), or leave "
        "CUDA graphs off in threads (no mode=\"reduce-overhead\"), or use torch 2.13 or later.",
        signature=Signature(
            errors=(r"^AssertionError:?\s*$",), frames=("cudagraph_trees.py:get_container|get_manager", "get_obj")
        ),
        program=_program(
            "cudagraph-tls",
            "a second thread's first graph",
            "TwoGraphs",
            _SECOND_THREAD,
            Effect(labels=("cudagraph_tls",)),
        ),
        pipeline=Case(
            "cudagraph-tls",
            "the second drafter's first graph, under a lock around every step",
            Scenario(
                devices="cuda:0", drafters=2, shapes="per_drafter", cudagraphs="trees", lock="every_step", steps=4
            ),
            _SECOND_DRAFTER,
            Effect(labels=("cudagraph_tls",)),
        ),
        reference=("pytorch/pytorch#123177", "pytorch/pytorch#184357"),
        found={"2.11": "20/20, counterfactual 0/20; in the pipeline 20/20, counterfactual 0/20 (NVIDIA H200)"},
    ),
    Hazard(
        id="cudagraph-pool",
        title="a graph is recorded while another thread uses the same memory pool",
        versions="",
        needs="cuda",
        window="A records a CUDA graph into the memory pool that all graphs of its tree share",
        access="B calls the same compiled function, so it records or replays in that pool",
        effect='"storage data ptrs are not allocated in pool" or "tensor(s) in the cudagraph pool not tracked as outputs", an '
        "invalidated capture, an illegal memory access, or an abort of the process, by the moment",
        remedy='One process for each tree of CUDA graphs, or none in threads (no mode="reduce-overhead"). A lock around '
        "first steps is too short: the second step records. A lock around every step (every_step) keeps others out of a "
        "recording, at about four times the step time; then mind the end of the thread that compiled first "
        "(cudagraph-importer-ends), and threads that multiply unlocked (cublas-workspaces-freed).",
        signature=Signature(
            errors=(
                r"not allocated in pool",
                r"in the cudagraph pool not tracked as outputs",
                r"observed an input tensor deallocate during graph",
                r"Not expecting deleter function",
                r"recording to mempool_id",
            ),
        ),
        program=_program("cudagraph-pool", "a call in the middle of a recording", "OnePool", _IN_CAPTURE, _POOL),
        pipeline=Case(
            "cudagraph-pool",
            "a drafter calls attention while another is about to capture it",
            Scenario(devices="cuda:0", drafters=2, cudagraphs="trees", lock="first_step", steps=4),
            _BEFORE_CAPTURE,
            _POOL,
            # Room for all items: the target is through before a drafter records (cublas-workspaces-freed is another hazard).
            settings={"queue_depth": 8},
        ),
        found={
            "2.11": "20/20 (capture invalidated), counterfactual 0/20; in the pipeline 20/20 (tensors in the pool not "
            "tracked), counterfactual 0/20 (NVIDIA H200)"
        },
    ),
    Hazard(
        id="cudagraph-overwritten",
        title="a result of a CUDA graph is overwritten by another thread's run",
        versions="",
        needs="cuda",
        window="A keeps a result of a function compiled with mode=\"reduce-overhead\"; it lies in the graph's own memory",
        access="B calls the same function, which replays into that memory",
        effect='A raises "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run"',
        remedy="Clone what is kept beyond the step before another thread can run the function, give each thread a process, or "
        "hold one lock from the call to the last use of its result.",
        signature=Signature(errors=(r"overwritten by a subsequent run",)),
        program=_program(
            "cudagraph-overwritten",
            "a replay between a result and its use",
            "Overwritten",
            _OVERWRITTEN,
            Effect(labels=("cudagraph_overwritten",)),
        ),
        elsewhere="a drafter uses the results of its attention within its own step; there this hazard is cudagraph-pool",
        found={"2.11": "harmless 20/20: the order happened, the effect did not (NVIDIA H200)"},
    ),
    Hazard(
        id="capture-invalidated",
        title="a capture by hand is invalidated by another thread's CUDA call",
        versions="",
        needs="cuda",
        window='A captures a graph with torch.cuda.graph, in its default capture_error_mode, "global": for all threads',
        access="B makes a call that the capture does not allow, such as torch.cuda.synchronize(): with one every "
        "torch.cuda.graph begins, so B's own capture is such a call, in any capture_error_mode",
        effect="both raise: operation not permitted when stream is capturing, and the capture is lost",
        remedy="One capture at a time in a process: hold a lock around each capture, or around every step (every_step), or "
        "capture before the other threads start. Capture with capture_error_mode=\"thread_local\", as inductor does, and let "
        "no thread synchronise the whole device meanwhile.",
        signature=Signature(
            errors=(
                r"operation not permitted when stream is capturing",
                r"operation failed due to a previous error during capture",
            )
        ),
        program=_program(
            "capture-invalidated",
            "a synchronisation in the middle of a capture",
            "GlobalCapture",
            _CAPTURED,
            Effect(labels=("capture_invalidated",)),
        ),
        elsewhere="only cudagraphs=manual captures by hand there, in the mode thread_local: two drafters of one device can "
        "meet in their third steps, each capturing, but no plan brings that about; CUDA-graph trees use that mode, too",
        reference=("pytorch/pytorch#107407",),
        found={"2.11": "20/20, counterfactual 0/20 (NVIDIA H200)"},
    ),
    Hazard(
        id="autotuner-first-launch",
        title="two threads' first launches of one autotuned kernel",
        versions="",
        needs="cuda",
        window="A launches an autotuned Triton kernel for the first time, and its configurations are being timed; the "
        "autotuner keeps A's arguments in itself meanwhile",
        access="B launches the same kernel; when it has, the autotuner forgets the arguments",
        effect="A raises TypeError: 'NoneType' object is not a mapping",
        remedy="Launch each autotuned kernel once, with each key that will occur, on one thread before the others start; or "
        "leave it one configuration.",
        signature=Signature(
            errors=(r"TypeError: 'NoneType' object is not a mapping", r"TypeError: 'NoneType' object is not subscriptable"),
            frames=("autotuner.py:run", "autotuner.py:_bench|autotuner.py:benchmark|autotuner.py:run"),
        ),
        program=_program(
            "autotuner-first-launch",
            "a launch while another thread's first one is tuned",
            "FirstLaunch",
            _TUNED,
            Effect(labels=("error",), text=_TUNING_ERROR),
        ),
        elsewhere="the pipeline launches no autotuned kernel of its own, and inductor tunes its kernels while it compiles",
        reference=("pytorch/pytorch#198257", "triton-lang/triton#11494"),
        found={"2.11": "20/20, counterfactual 0/20 (NVIDIA H200)"},
    ),
)
