"""What the GPUs of this machine do while trials run, sampled from outside the subjects through NVML.

Numbers are of a device, not of a process: with `--jobs` above 1 they are the sum of all trials on it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.analysis.starved import ends_of

EVERY_S = 0.25


Window = tuple[float, float]
"""From when to when, in seconds of `time.perf_counter`, which is one clock for all processes on Linux."""


@dataclass
class _Series:
    """Of one device in one trial: (when, percent of the time in which a kernel ran), and bytes in use."""

    busy: list[tuple[float, int]] = field(default_factory=list)
    most_bytes: int = 0

    def measures(self, warm: Window | None) -> dict[str, Any]:
        """Shares of time in which a kernel ran: mean and highest, and the mean in the window, where that has a sample."""
        shares = [share / 100 for _, share in self.busy]
        found = {
            "busy_mean": round(sum(shares) / len(shares), 3),
            "busy_most": max(shares),
            "most_bytes": self.most_bytes,
            "samples": len(shares),
        }
        # A sample is of a stretch of time before it: the first one in the window may be of what was before.
        inside = [share / 100 for at, share in self.busy if warm is not None and warm[0] + EVERY_S <= at <= warm[1]]
        if inside:
            found |= {"busy_warm": round(sum(inside) / len(inside), 3), "samples_warm": len(inside)}
        return found


class GpuLoad:
    """Samples the devices that running trials use, at most every `EVERY_S` seconds; opens NVML at the first need."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._unavailable = ""
        self._handles: dict[int, Any] = {}
        self._refused: dict[int, str] = {}  # device → why it says nothing
        self._series: dict[str, dict[int, _Series]] = {}
        self._next = 0.0

    def begin(self, trial: str, devices: str) -> None:
        """A trial starts on `devices`, as the axis says ("cuda:0+cuda:1"); nothing for the CPU."""
        numbers = {int(number) for number in re.findall(r"cuda:(\d+)", devices)}
        if numbers and self._open():
            self._series[trial] = {number: _Series() for number in sorted(numbers)}

    def sample(self) -> None:
        """To be called often."""
        now = time.monotonic()
        if not self._series or now < self._next:
            return
        self._next = now + EVERY_S
        for number in {number for series in self._series.values() for number in series}:
            handle = self._handle(number)
            if handle is None:
                continue
            try:
                busy = int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                used = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)
            except self._nvml.NVMLError as error:  # a part of a device (MIG) has no load of its own
                self._handles[number] = None
                self._refused[number] = str(error)
                continue
            at = time.perf_counter()
            for series in self._series.values():
                if number in series:
                    series[number].busy.append((at, busy))
                    series[number].most_bytes = max(series[number].most_bytes, used)

    def end(self, trial: str, warm: Window | None = None) -> dict[str, Any]:
        """By device: mean and highest share of time in which it was busy, highest memory in use, how many samples; and the
        mean in the window `warm`."""
        found = self._series.pop(trial, {})
        if self._unavailable:
            return {"unavailable": self._unavailable}
        refused = {f"cuda:{number}": {"unavailable": self._refused[number]} for number in found if number in self._refused}
        return refused | {f"cuda:{number}": one.measures(warm) for number, one in found.items() if one.busy}

    def close(self) -> None:
        """Done with NVML."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None

    def _open(self) -> bool:
        if self._nvml is None and not self._unavailable:
            if importlib.util.find_spec("pynvml") is None:
                self._unavailable = "nvidia-ml-py is not installed: pip install 'harness[gpu]'"
                return False
            nvml = importlib.import_module("pynvml")
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                self._unavailable = f"NVML: {error}"
                return False
            self._nvml = nvml
        return self._nvml is not None

    def _handle(self, number: int) -> Any:
        """Of the device that CUDA calls `number`; None where it is not known which that is, and `_refused` says why."""
        if number not in self._handles:
            self._handles[number] = None
            try:
                self._handles[number] = self._found(visible_device(number, os.environ.get("CUDA_VISIBLE_DEVICES")))
            except (self._nvml.NVMLError, LookupError) as error:
                self._refused[number] = str(error) if isinstance(error, LookupError) else f"NVML: {error}"
        return self._handles[number]

    def _found(self, name: int | str) -> Any:
        """The handle of NVML's. Raises NVMLError or LookupError: there is none, or another may be meant."""
        nvml = self._nvml
        if isinstance(name, int) and os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
            return nvml.nvmlDeviceGetHandleByIndex(name)
        every = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        if isinstance(name, int):
            models = sorted({_text(nvml.nvmlDeviceGetName(handle)) for handle in every})
            if len(models) > 1:  # CUDA begins with the fastest
                raise LookupError(
                    f"CUDA may count {' and '.join(models)} in another order than NVML; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
                )
            return nvml.nvmlDeviceGetHandleByIndex(name)
        alike = [handle for handle in every if _text(nvml.nvmlDeviceGetUUID(handle)).startswith(name)]
        if len(alike) > 1:
            raise LookupError(f"CUDA_VISIBLE_DEVICES has {name}, with which the names of {len(alike)} GPUs begin")
        return alike[0] if alike else nvml.nvmlDeviceGetHandleByUUID(name)  # of a part of a device (MIG)


def _text(said: str | bytes) -> str:
    """Older versions of the package give bytes."""
    return said.decode() if isinstance(said, bytes) else said


def warm_window(row: Mapping[str, Any]) -> Window | None:
    """From when all who take steps were warm to the last good step of any worker; None where a row does not say."""
    began, startup = row.get("facts", {}).get("clock_start_ns"), row.get("startup_s")
    ends = ends_of(row).values()
    if not isinstance(began, int) or not isinstance(startup, int | float) or not ends:
        return None
    warm = began / 1e9 + startup
    return warm, warm + max(ends)


def visible_device(number: int, visible: str | None) -> int | str:
    """CUDA's device `number` as NVML knows it: an index, or what CUDA_VISIBLE_DEVICES gives of its identifier.

    Raises LookupError: CUDA has no such device.
    """
    if visible is None:
        return number
    entries = [entry.strip() for entry in visible.split(",")]
    if number >= len(entries) or not entries[number]:
        raise LookupError(f"CUDA_VISIBLE_DEVICES={visible} leaves no device {number}")
    return int(entries[number]) if entries[number].isdigit() else entries[number]
