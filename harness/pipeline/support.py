"""What the axes of a scenario mean on this machine, and which scenarios cannot run here."""

from __future__ import annotations

import torch

from harness.core.workload import HOSTED, INDUCTOR_EAGER, Scenario


def devices_of(scenario: Scenario, role: str = "") -> list[torch.device]:
    """The devices of a role ("target", "drafter"; "" for all), dealt out to its workers in turn.

    "cuda:0/cuda:1+cuda:2": the targets' and the drafters'; without a "/", both share.
    """
    parts = scenario.devices.split("/")
    if role:
        parts = [parts[0] if role == "target" else parts[-1]]
    names = dict.fromkeys(name for part in parts for name in part.split("+"))
    return [torch.device(name) for name in names]


def backend_of(scenario: Scenario) -> str:
    """The `torch.compile` backend: "auto" is inductor on CUDA, on the CPU aot_eager, on `hosted:0` inductor_eager.

    Inductor's CPU code for `flex_attention` has no backward, so training there needs a backend that runs the
    traced graphs as they are. `inductor_eager` does that too, behind inductor's own front end and its locks.
    """
    if scenario.backend != "auto":
        return scenario.backend
    if scenario.devices == HOSTED:
        return INDUCTOR_EAGER
    return "aot_eager" if scenario.devices == "cpu" else "inductor"


def unsupported(scenario: Scenario) -> str:
    """Why this scenario cannot run here; "" when it can."""
    on_cpu = "cuda" not in scenario.devices
    if not on_cpu:
        if not torch.cuda.is_available():
            return f"devices={scenario.devices}: no CUDA device here"
        present = torch.cuda.device_count()
        for device in devices_of(scenario):
            if (device.index or 0) >= present:
                return f"devices={scenario.devices}: {device} is not there; this machine has {present} CUDA device(s)"
    if scenario.cudagraphs != "off" and on_cpu:
        return f"cudagraphs={scenario.cudagraphs}: CUDA graphs need a CUDA device"
    if scenario.cudagraphs == "manual" and scenario.shapes == "variable":
        return "cudagraphs=manual: a captured step has fixed shapes; use shapes=fixed or per_drafter"
    if scenario.cudagraphs == "trees" and backend_of(scenario) != "inductor":
        return f"cudagraphs=trees: CUDA-graph trees belong to inductor, not to {backend_of(scenario)}"
    if on_cpu and scenario.compile != "none" and backend_of(scenario) == "inductor":
        return "backend=inductor: its flex_attention for the CPU has no backward"
    return ""
