"""What the end of a thread takes away from the others."""

from __future__ import annotations

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature

_STEPS = [Step("A", "mark.imported"), Step("B", "mark.counting")]
_REFERENCES_TAKEN = Counterfactual(settings={"references": "taken"})

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="cudagraph-importer-ends",
        title="the thread that first compiled for CUDA-graph trees ends, and memory in use is freed",
        versions="<2.12",
        needs="cpu",
        window="A was the first to compile with mode=\"reduce-overhead\", so it imported torch's CUDA-graph trees; they hand "
        "two dictionaries to torch's thread-local storage, which takes no reference to them, and A ends: it gives up two",
        access="B, or autograd's thread, goes on: A's graphs are in use for as long as the compiled function is",
        effect="the dictionaries are freed while they are used: SIGSEGV in any thread (in PyObject_GC_UnTrack, say), an error "
        "that cannot be (\"'slice' object is not callable\"), or a thread that never returns and holds the interpreter lock",
        remedy="Use torch 2.12 or later, or keep the thread that compiles first alive until the process ends, or take the "
        "references on it: import torch._inductor.cudagraph_trees as trees, then for each of "
        "trees.local.tree_manager_containers and trees.local.tree_manager_locks "
        "ctypes.pythonapi.Py_IncRef(ctypes.py_object(it)).",
        signature=Signature(),
        program=Case(
            "cudagraph-importer-ends",
            "a thread imports the trees and ends; another counts who still holds their dictionaries",
            Scenario(workload="harness.subject.programs.thread_end:ImporterEnds"),
            Plan({"A": "importer", "B": "counter"}, steps=_STEPS, counterfactual=_REFERENCES_TAKEN),
            Effect(fact="effect"),
        ),
        elsewhere="with cudagraphs=trees the drafter that compiles first ends so there (docs/findings.md), but no plan orders "
        "anything after the end of a thread",
        reference=("pytorch/pytorch#180295", "pytorch/pytorch#117762"),
        found={
            "2.11": "20/20, counterfactual 0/20; in the pipeline by chance 9/30, with references taken 0/30 (NVIDIA H200)",
            "2.12": "0/3: harmless",
            "2.13": "0/3: harmless",
        },
    ),
)
