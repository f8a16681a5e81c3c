"""Scenarios that cannot run on this machine, told before a process is started for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.control.memory_need import memory_reason
from harness.core.scenario import Scenario

UNCOUNTED = 1024
"""GPUs, where their number is not known."""


def skip_reason(scenario: Scenario, environment: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Why this scenario cannot run here, or "": a device, a feature or memory that is not there.

    `environment`: of `describe_environment`; `settings`: the workload's table, `[pipeline]`. Raises SettingError: it is the
    pipeline's, and wrong.
    """
    return _missing_device(scenario, environment) or memory_reason(scenario, settings, environment)


def _missing_device(scenario: Scenario, environment: Mapping[str, Any]) -> str:
    cuda = [int(number) for number in re.findall(r"cuda:(\d+)", scenario.devices)]
    if cuda:
        if "+cpu" in str(environment["torch"]):
            return f"devices={scenario.devices} needs a CUDA build of torch; this is {environment['torch']}"
        visible = visible_gpus(environment)
        if max(cuda) >= visible:
            note = f" ({environment['gpus_note']})" if environment.get("gpus_note") else ""
            return f"devices={scenario.devices} needs {max(cuda) + 1} CUDA device(s); {visible} here{note}"
    elif scenario.cudagraphs != "off":
        return f"cudagraphs={scenario.cudagraphs} needs a CUDA device; devices={scenario.devices}"
    elif scenario.workload == "dflash" and scenario.backend == "inductor" and scenario.compile != "none":
        # torch raises NotImplementedError: its CPU kernels of flex_attention are for inference only (seen on
        # 2.11-2.14)
        return (
            "backend=inductor has no flex_attention with gradients on the CPU; use backend=aot_eager or a CUDA device"
        )
    return ""


def visible_gpus(environment: Mapping[str, Any]) -> int:
    """What CUDA_VISIBLE_DEVICES leaves of the machine's GPUs, never too few; CUDA stops at the first entry it cannot use.

    Where the machine's are not counted, as many as any scenario may name: the subjects will say what is missing.
    """
    present = len(environment["gpus"]) if environment.get("gpus_counted", True) else UNCOUNTED
    listed = environment["variables"].get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return present
    entries = [entry.strip() for entry in str(listed).split(",")] if str(listed).strip() else []
    usable = 0
    for entry in entries:
        if not entry or (entry.lstrip("-").isdigit() and not 0 <= int(entry) < present):
            break
        usable += 1
    return usable
