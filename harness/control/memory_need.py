"""The memory that a scenario of the DFlash pipeline cannot do without, by device, against what the machine has.

A lower bound, from what the pipeline keeps (`harness.pipeline`: assembly, optimizer, replicas, graphed_step): weights of
targets and drafters, the optimizer's float32 copies and moments, and the gradients of one step. Left out is whatever depends
on chance or on torch: activations, logits, items in queues, compiled code, the allocator, a CUDA context, and what models
take while they are built. A scenario that keeps to the bound may therefore still run out of memory; one that breaks it would
not come to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.control.model_sizes import ModelSizes, model_sizes
from harness.core.scenario import Scenario
from harness.core.settings import PipelineSettings, parse_settings

GIB = 2**30

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_FLOAT32 = 4
_MOMENTS = 2  # of AdamW, in float32
_STEPS_BEFORE_A_GRAPH = 2  # of cudagraphs=manual


@dataclass(frozen=True)
class Need:
    """What one device must hold: `bytes`, for so many drafters, and whether for a target."""

    bytes: int
    drafters: int
    target: bool


def memory_reason(scenario: Scenario, settings: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """Why a device has too little memory for the scenario; "" where it has enough, or a fact is missing.

    `settings`: the table `[pipeline]`; `environment`: of `describe_environment`. Raises SettingError: a setting is wrong.
    """
    if scenario.workload != "dflash":
        return ""
    parsed = parse_settings(settings, "settings")
    sizes = model_sizes(parsed)
    if sizes is None:
        return ""
    for device, need in needs(scenario, parsed, sizes).items():
        has = memory_of(device, environment)
        if has is not None and need.bytes > has:
            return (
                f"devices={scenario.devices} needs at least {_gib(need.bytes)} on {device} for {_what(need, sizes)}; "
                f"{'it' if device.startswith('cuda') else 'this machine'} has {_gib(has)}"
            )
    return ""


def needs(scenario: Scenario, settings: PipelineSettings, sizes: ModelSizes) -> dict[str, Need]:
    """By device, in the order that the scenario names them, the targets' first."""
    target_devices, drafter_devices = (part.split("+") for part in _roles(scenario.devices))
    dealt = Counter(drafter_devices[i % len(drafter_devices)] for i in range(scenario.drafters))
    with_target = set(target_devices[: scenario.targets])
    found = {}
    for device in dict.fromkeys([*target_devices, *drafter_devices]):
        drafters, target = dealt[device], device in with_target
        if drafters or target:
            if scenario.lock == "process":  # the target in one process; one drafter in another, as the others may have ended
                kept = (sizes.target if target else 0) + (sizes.frozen if drafters else 0)
                trained = min(drafters, 1)
            else:
                kept, trained = (sizes.target if target else sizes.frozen), drafters
            size = kept * _BYTES[settings.dtype] + _training(scenario, settings, sizes.drafter, trained)
            found[device] = Need(size, drafters, target)
    return found


def _training(scenario: Scenario, settings: PipelineSettings, parameters: int, drafters: int) -> int:
    """Bytes of the drafters of one device, when the last of them has taken its gradients and moments for the first time.

    Gradients of the others are gone by then, by chance, unless all wait for each other or graphs keep them.
    """
    if not drafters:
        return 0
    size, low = _BYTES[settings.dtype], settings.dtype != "float32"
    graphs = scenario.cudagraphs == "manual" and scenario.steps > _STEPS_BEFORE_A_GRAPH
    together = graphs or (scenario.replicas == "synchronised" and scenario.steps > 1)
    lasting = size + (_FLOAT32 if low else 0)
    moments = _MOMENTS * _FLOAT32 * drafters
    gradients = size * (drafters if together else 1)
    # AdamW takes a float32 gradient as it is: on CUDA it is told the factor; elsewhere each makes room for its clipped one.
    clipped = _FLOAT32 if low else 0
    return parameters * (drafters * lasting + moments + gradients + clipped)


def memory_of(device: str, environment: Mapping[str, Any]) -> int | None:
    """Bytes of a device, never below the true ones; None: not known. A device of the CPU has the machine's memory.

    CUDA may count devices in another order than nvidia-smi lists them, unless it is told not to. Where the order is not
    sure, the largest GPU stands for each.
    """
    if not device.startswith("cuda"):
        usable = environment.get("memory_usable_bytes")
        return usable if isinstance(usable, int) else None
    sizes = [gpu.get("memory_mib") for gpu in environment.get("gpus") or ()]
    if not sizes or not all(isinstance(size, int) for size in sizes) or not environment.get("gpus_counted", True):
        return None
    variables = environment.get("variables") or {}
    number = int(device.removeprefix("cuda:"))
    if variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        listed = variables.get("CUDA_VISIBLE_DEVICES")
        entries = [str(i) for i in range(len(sizes))] if listed is None else str(listed).split(",")
        entry = entries[number].strip() if number < len(entries) else ""
        if entry.isdigit() and int(entry) < len(sizes):
            return int(sizes[int(entry)]) << 20
    return max(int(size) for size in sizes) << 20


def _roles(devices: str) -> tuple[str, str]:
    """The targets' devices and the drafters'."""
    first, _, second = devices.partition("/")
    return first, second or first


def _what(need: Need, sizes: ModelSizes) -> str:
    drafters = f"{need.drafters} drafter{'' if need.drafters == 1 else 's'} of {_number(sizes.drafter)} parameters"
    target = f"a target of {_number(sizes.target)}"
    if not need.drafters:
        return f"{target} parameters"
    return f"{drafters} and {target}" if need.target else drafters


def _number(count: int) -> str:
    """1.05 B, 78.6 M."""
    for size, sign in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{sign}"
    return str(count)


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"
