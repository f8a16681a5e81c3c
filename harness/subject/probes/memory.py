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

    def install(self) -> str:
        """Nothing is hooked; "" on the CPU, whose memory this is not about."""
        return "ok" if self._on else ""

    def place(self, devices: dict[str, str]) -> None:
        """Which worker runs where."""
        self._devices = {worker: device for worker, device in devices.items() if device.startswith("cuda")}

    def stepped(self, worker: str) -> None:
        """A good step of `worker` has ended, on the calling thread."""
        device = self._devices.get(worker)
        if device is not None:
            allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
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
