"""environment.json: where a run took place, by an allowlist of facts.

Nothing of the environment is taken wholesale.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import harness
from harness.control.gpus import find_gpus
from harness.control.host_memory import usable_memory_bytes
from harness.control.interpreter import describe_python

LONGEST_VALUE = 500

_ALLOWED = re.compile(
    r"(TORCH|TORCHINDUCTOR|TORCHDYNAMO|TORCH_COMPILE|PYTORCH|AOT|CUDA|NCCL|OMP|GOMP|KMP|MKL|OPENBLAS|TRITON)_[A-Z0-9_]+"
    r"|PYTHON(HASHSEED|MALLOC|OPTIMIZE|FAULTHANDLER|_GIL|UNBUFFERED)"
    r"|CUBLAS_WORKSPACE_CONFIG|TOKENIZERS_PARALLELISM|HF_HUB_OFFLINE|NVIDIA_VISIBLE_DEVICES"
)
_SECRET = re.compile(r"TOKEN(?!IZERS)|SECRET|PASS|CREDENTIAL|AUTH|(^|_)KEY|URL|ENDPOINT|PROXY", re.IGNORECASE)


def describe_environment(python: str, command: list[str] | None = None) -> dict[str, Any]:
    """Facts about this machine and the interpreter of the subjects.

    `gpus` are those nvidia-smi lists (all of the machine); where it does not, those known of, `gpus_counted` says whether
    that is all of them, and `gpus_note` why nvidia-smi did not say. `cores_usable` those this process may run on;
    `memory_usable_bytes` is what it may have of memory and swap.
    Raises UserError when the interpreter does not run.
    """
    gpus = find_gpus()
    return {
        "harness": harness.__version__,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": ["harness", *(sys.argv[1:] if command is None else command)],
        **describe_python(python),
        "executable": python,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_bytes": memory_bytes(),
        "memory_usable_bytes": usable_memory_bytes(),
        "gpus": gpus.listed,
        "gpus_counted": gpus.counted,
        "gpus_note": gpus.note,
        "variables": allowed_variables(os.environ),
    }


def allowed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how torch behaves.

    A name that smells of a secret, or a value that holds an address, is out.
    """
    return {
        name: value[:LONGEST_VALUE]
        for name, value in sorted(environ.items())
        if _ALLOWED.fullmatch(name) and not _SECRET.search(name) and "://" not in value and "@" not in value
    }


def cpu_model() -> str:
    """The processor's name, "" when the system does not say."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except FileNotFoundError:
        return platform.processor()
    return platform.processor()


def memory_bytes() -> int | None:
    """Physical memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
