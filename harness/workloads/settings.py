"""The `[pipeline]` table of these workloads: whole numbers and one learning rate, with defaults for a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from harness.core.errors import SettingError, nearest
from harness.core.workload import Scenario

SIZES: Mapping[str, int] = {"vocabulary": 64, "width": 32, "heads": 2, "layers": 2, "length": 32, "batch": 2}
RATES: Mapping[str, float] = {"learning_rate": 1e-2}


def read_sizes(settings: Mapping[str, Any], workload: str) -> dict[str, int]:
    """The sizes. Raises SettingError: a key there is not, no whole number above 0, or a width that heads do not divide."""
    sizes = dict(SIZES)
    for key, value in settings.items():
        if key in RATES:
            continue
        if key not in SIZES:
            known = ", ".join((*SIZES, *RATES))
            raise SettingError(f'[pipeline] of "{workload}": no key "{key}"{nearest(key, (*SIZES, *RATES))}; it takes {known}')
        if type(value) is not int or value < 1:
            raise SettingError(f'[pipeline] of "{workload}" key "{key}": {value!r} is no whole number above 0')
        sizes[key] = value
    if sizes["width"] % (2 * sizes["heads"]):
        raise SettingError(
            f'[pipeline] of "{workload}": width = {sizes["width"]} is no multiple of 2 · heads = {2 * sizes["heads"]}'
        )
    return sizes


def learning_rate(settings: Mapping[str, Any]) -> float:
    """Of the trainer. Raises SettingError: no number above 0."""
    value = settings.get("learning_rate", RATES["learning_rate"])
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise SettingError(f'[pipeline] key "learning_rate": {value!r} is no number above 0')
    return float(value)


def devices_of(scenario: Scenario) -> list[torch.device]:
    """Thread i gets device i modulo their number."""
    return [torch.device(name) for name in scenario.devices.split("/")[-1].split("+")]


def not_here(scenario: Scenario, fixed: Mapping[str, object]) -> str:
    """Why the scenario cannot run: a CUDA device that is not there, or an axis of `fixed` with another value than that."""
    for axis, value in fixed.items():
        if scenario.value(axis) != value:
            return f'{axis}={scenario.value(axis)}: workload "{scenario.workload}" has only {axis}={value}'
    for device in devices_of(scenario):
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            return f"devices={scenario.devices}: {device} is not there"
    return ""
