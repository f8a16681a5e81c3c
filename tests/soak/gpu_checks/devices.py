"""How many CUDA devices the checks can have, known without torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from harness.control.environment import describe_environment
from harness.control.skips import visible_gpus


@dataclass(frozen=True)
class Devices:
    """`machine`: in words. `torch`: "" where there is none."""

    count: int
    machine: str
    torch: str

    def lacks(self, needed: int) -> str:
        """Why a check that needs so many cannot run here; "" when it can."""
        if needed <= self.count:
            return ""
        wanted = "a CUDA device" if needed == 1 else f"{needed} CUDA devices"
        return f"needs {wanted}; {self.count} here"


def here() -> Devices:
    """What this interpreter's torch can use of the machine's GPUs."""
    environment = describe_environment(sys.executable)
    torch = str(environment["torch"] or "")
    gpus = [str(gpu["name"]) for gpu in environment["gpus"]]
    built = bool(torch) and "+cpu" not in torch
    count = visible_gpus(environment) if built else 0
    named = " + ".join(f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus)) or "no GPU"
    return Devices(count, f"{named}, {environment['cores_usable']} CPU cores, torch {torch or 'missing'}", torch)
