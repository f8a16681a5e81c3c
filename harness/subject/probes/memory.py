"""CUDA memory: what is allocated and reserved after each step of a worker, and the peaks of each device."""

from __future__ import annotations

import re
from typing import Any

import torch

from .base import Quiet, Scope


class MemoryProbe(Quiet):
    """Asks torch's allocator, which keeps these numbers anyway; no call waits for the device.

    Event `memory`: `d` device, `a` allocated and `r` reserved bytes, of the whole process on that device.
    """

    name = "cuda_memory"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._named = re.findall(r"cuda:\d+", scope.scenario.devices)
        self._on = bool(self._named)
        self._devices: dict[str, str] = {}  # worker → its device
        self._numbers: dict[str, int | None] = {}  # device → torch's number of it

    def install(self) -> str:
        """Nothing is hooked; "" on the CPU, whose memory this is not about."""
        if not self._on:
            return ""
        if getattr(torch.cuda, "memory_stats_as_nested_dict", None) is None:
            return f"unavailable: torch {torch.__version__} has no torch.cuda.memory_stats_as_nested_dict"
        return "ok"

    def place(self, devices: dict[str, str]) -> None:
        """Which worker runs where."""
        self._devices = {worker: device for worker, device in devices.items() if device.startswith("cuda")}
        self._numbers = {device: torch.device(device).index for device in self._devices.values()}

    def stepped(self, worker: str) -> None:
        """A good step of `worker` has ended, on the calling thread."""
        device = self._devices.get(worker)
        if device is not None:
            allocated, reserved = in_use(self._numbers[device])
            self._log.emit("memory", f',"d":"{device}","a":{allocated},"r":{reserved}')

    def peaks(self) -> dict[str, dict[str, Any]]:
        """Bytes by device: highest allocated and reserved since the start, and what the device has.

        Before any worker is placed, of all devices that the scenario names.
        """
        if not self._on or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return {}
        return {
            device: {
                "peak_allocated": torch.cuda.max_memory_allocated(device),
                "peak_reserved": torch.cuda.max_memory_reserved(device),
                "total": torch.cuda.get_device_properties(device).total_memory,
            }
            for device in sorted(set(self._devices.values() or self._named))
        }


def in_use(number: int | None) -> tuple[int, int]:
    """Bytes allocated and reserved on device `number`, None: the current one, as `memory_allocated` and `memory_reserved` say.

    Each of those has all of the allocator's numbers made, flattened and sorted, to take one; here they are made once.
    """
    told = torch.cuda.memory_stats_as_nested_dict(number)
    if not told:  # CUDA is not initialised
        return 0, 0
    return int(told["allocated_bytes"]["all"]["current"]), int(told["reserved_bytes"]["all"]["current"])
