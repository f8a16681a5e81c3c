"""Matrix products in one thread, and CUDA graphs that another records."""

from __future__ import annotations

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards.base import Hazard, Signature

# Which recording meets which product is left to chance: no Python runs between a workspace's choice and the kernel's launch.
_MEANWHILE = Plan(
    {"A": "recorder", "B": "multiplier"},
    steps=[Step("B", "mark.multiplying"), Step("A", "mark.recording")],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "mark.begin", until="A is through")],
        steps=[Step("A", "region.step.exit", name="A is through"), Step("B", "mark.begin")],
    ),
)

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        id="cublas-workspaces-freed",
        title="recording a CUDA graph frees the workspaces that other threads multiply in",
        versions="",
        needs="cuda",
        window="A records a graph of CUDA-graph trees (mode=\"reduce-overhead\"): torch drops the cuBLAS workspaces of all "
        "threads first, and then gives all memory that nobody holds back to the driver",
        access="B multiplies: it has asked for its workspace before, and starts its kernel, which writes there, after that. B "
        "need not compile or train: a target model's forward is enough",
        effect="an illegal memory access (or CUBLAS_STATUS_EXECUTION_FAILED), first seen wherever the device is asked next; "
        "from then on every thread's CUDA calls fail",
        remedy="Keep every thread of the process out of its CUDA calls while one records: one lock around both, target threads "
        "included (every_step locks drafters only), or record all graphs before the others start. Or leave no workspaces to "
        "free: CUBLAS_WORKSPACE_CONFIG=:0:0, with which large products take as long as before and small ones two or three "
        "times as long. Or mode=\"reduce-overhead\" in a process of its own. torch.cuda.graph by hand drops no workspaces.",
        signature=Signature(
            errors=(r"an illegal memory access was encountered", r"CUBLAS_STATUS_EXECUTION_FAILED"),
            frames=("cudagraph_trees.py:record_function|_record",),
            unseen="whether another thread multiplied meanwhile: the error comes up where the device is asked next",
        ),
        program=Case(
            "cublas-workspaces-freed",
            "graphs are recorded while three threads multiply",
            Scenario(workload="harness.subject.programs.cublas:WorkspacesFreed", devices="cuda:0"),
            _MEANWHILE,
            Effect(labels=("cuda_fault", "crash")),
        ),
        elsewhere="with cudagraphs=trees it strikes where a target multiplies on a drafter's device while the drafter records "
        "(docs/findings.md), but no Python runs in the moment that matters, so no plan can hold a thread there",
        reference=("pytorch/pytorch#167248", "pytorch/pytorch#193402"),
        found={
            "2.11": "as a script 3/3, with CUBLAS_WORKSPACE_CONFIG=:0:0 0/3; by plan, threads on any core, 18/20 beside ten "
            "other trials and 1/13 beside four of its kind, counterfactual 0/20 (NVIDIA H200, 16 cores)"
        },
    ),
)
