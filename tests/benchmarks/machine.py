"""The line that names the machine, and small helpers for paired measurements."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path


def machine() -> str:
    """`Linux 6.1, 2 × AMD EPYC …, Python 3.11.7`."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} × {model}, Python {platform.python_version()}"


def spread(values: Sequence[float]) -> str:
    """Median with the smallest and largest value."""
    return f"{statistics.median(values):.4g} ({min(values):.4g} – {max(values):.4g}, n = {len(values)})"
