"""What a trial that ran out of memory says: how much was in use, and that no lock is to blame."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable, Mapping
from typing import Any

LABEL = "out_of_memory"
GIB = 2**30

Peaks = Mapping[str, Mapping[str, Any]]
"""Device → `peak_allocated`, `peak_reserved`, `total`, in bytes; see `probes.memory`."""


def reason(peaks: Peaks) -> str:
    """One line. Without a device that tells its peak, that of the process in the machine's memory."""
    told = [
        f"on {device} {_gib(one['peak_allocated'])} allocated, {_gib(one['peak_reserved'])} reserved, of {_gib(one['total'])}"
        for device, one in peaks.items()
    ]
    return f"peak {'; '.join(told) or _resident()}; too little memory is no fault of a lock"


def highest(peaks: Iterable[Peaks]) -> dict[str, dict[str, Any]]:
    """Of the processes of a trial, the largest number of each kind for each device."""
    found: dict[str, dict[str, Any]] = {}
    for process in peaks:
        for device, numbers in process.items():
            known = found.setdefault(device, {})
            known.update({name: max(number, known.get(name, number)) for name, number in numbers.items()})
    return found


def _resident() -> str:
    unit = 1 if sys.platform == "darwin" else 1024
    return f"{_gib(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)} of the machine's memory in this process"


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
