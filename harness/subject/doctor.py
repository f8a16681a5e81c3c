"""What works in this interpreter: every probe is installed and asked, in a process that does nothing else."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.core.axes import HOSTED
from harness.core.scenario import Scenario

from .eventlog import EventLog
from .identity import Threads
from .points import Points
from .record import Trial
from .schedules.base import Listening


def examine() -> dict[str, Any]:
    """Interpreter, torch, devices, probes and problems, as JSON values. Never raises for a broken torch: it says so."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": None,
        "cuda": None,
        "devices": [],
        "probes": {},
        "problems": [],
    }
    try:
        import torch
    except ImportError as error:
        found["problems"].append(f"torch cannot be imported: {error}")
        return found
    found["torch"] = str(torch.__version__)
    found["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        found["devices"] = [
            {
                "name": torch.cuda.get_device_name(index),
                "memory_bytes": torch.cuda.get_device_properties(index).total_memory,
            }
            for index in range(torch.cuda.device_count())
        ]
    try:
        found["transformers"] = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        found["problems"].append("transformers is not installed, so the DFlash pipeline cannot run")
    found["probes"] = _probes()
    return found


def _probes() -> dict[str, str]:
    """Name → "ok" or why not; the device `hosted:0` is among them, for it too hangs on private names of torch."""
    from harness.torch_internals.hosted_device import register

    from . import torch_setup
    from .probes import Probes

    with tempfile.TemporaryDirectory(prefix="harness-doctor-") as folder:
        threads = Threads()
        log = EventLog(Path(folder), threads, max_bytes=1 << 20)
        points = Points()
        points.connect(Listening(), threads)  # so that the probes that only a schedule needs say whether they work
        probes = Probes(log, threads, Trial(), points)
        probes.install(Scenario(), enabled=True)
        hosted = register()
        status = {**probes.status, **torch_setup.prepare(Scenario()), HOSTED: "ok" if hosted.ok else hosted.reason}
        log.close()
    return status
