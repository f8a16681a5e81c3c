"""How many NVIDIA GPUs this machine has, by nvidia-smi; where that does not say, by what the driver shows in the file system.

nvidia-smi may be left out of a container, and take longer than anyone waits: without persistence mode it starts every GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NVIDIA_SMI_TIMEOUT_S = 20.0

_UNNAMED = "NVIDIA GPU"


@dataclass(frozen=True)
class Gpus:
    """`listed`: name, memory_mib, driver of each; not all of them unless `counted`. `note`: why nvidia-smi did not say."""

    listed: list[dict[str, Any]] = field(default_factory=list)
    counted: bool = True
    note: str = ""


def find_gpus(root: Path = Path("/")) -> Gpus:
    """All of the machine, whatever CUDA_VISIBLE_DEVICES says. `root`: of the file system that is looked at besides."""
    told = _by_nvidia_smi()
    return _by_the_driver(told, root) if told.note else told


def _by_nvidia_smi() -> Gpus:
    program = shutil.which("nvidia-smi")
    if program is None:
        return Gpus(note="there is no nvidia-smi")
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            query,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=NVIDIA_SMI_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Gpus(counted=False, note=f"nvidia-smi took more than {NVIDIA_SMI_TIMEOUT_S:g} s")
    except OSError as error:
        return Gpus(note=f"nvidia-smi does not run: {error.strerror}")
    if "No devices were found" in done.stdout + done.stderr:
        return Gpus()
    found = []
    for line in done.stdout.splitlines():
        fields = [part.strip() for part in line.rsplit(",", 2)]
        if len(fields) == 3 and re.fullmatch(r"\d[\d.]*", fields[2]):  # else it is a complaint
            memory = int(fields[1]) if fields[1].isdigit() else None
            found.append({"name": fields[0], "memory_mib": memory, "driver": fields[2]})
    if done.returncode == 0:
        return Gpus(found)
    said = " ".join((done.stderr.strip() or done.stdout.strip()).split())[:200]
    return Gpus(found, note=f"nvidia-smi ended with exit status {done.returncode}{f': {said}' if said else ''}")


def _by_the_driver(told: Gpus, root: Path) -> Gpus:
    """Where nvidia-smi did not say.

    A process reaches a GPU through its device file, but those may be made only when CUDA is first used, so fewer of them
    than the driver knows do not settle the number. The driver's own list is that of the host also in a container that was
    given none of them, so it does not count without any device file.
    """
    dev = root / "dev"
    files = sum(1 for path in dev.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))
    if not any(dev.glob("nvidia*")) and not (dev / "dxg").exists():  # dxg: WSL 2, which has no file for each GPU
        return Gpus(told.listed, told.counted and not told.listed, told.note)
    known = sorted((root / "proc" / "driver" / "nvidia" / "gpus").glob("*/information"))
    names = [_model(path) for path in known]
    if len(set(names)) > 1 and len(names) != files:
        names = []  # which of them the files are of is not known
    names = (names + [names[0] if names else _UNNAMED] * files)[:files]
    listed = [{"name": name, "memory_mib": None, "driver": None} for name in names]
    counted = 0 < len(known) <= files and len(told.listed) <= files
    return Gpus(max(told.listed, listed, key=len), counted, told.note)


def _model(information: Path) -> str:
    """`Model: NVIDIA H200` of the driver's text about a GPU."""
    try:
        said = re.search(r"^Model:\s*(\S.*)$", information.read_text("utf-8", "replace"), re.MULTILINE)
    except OSError:  # the GPU went away meanwhile, or may not be looked at
        return _UNNAMED
    return said[1].strip() if said else _UNNAMED
