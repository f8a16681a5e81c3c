"""Where a run took place and what was typed, as a report shows it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.matrix import Matrix
from harness.core.where import And, Match
from harness.report.text import clip, one_line, plain

LONGEST_VALUE = 600
LONGEST_COMMAND = 4_000

_NAMES = {
    "torch": "torch",
    "cuda": "CUDA of this torch",
    "python": "Python",
    "executable": "interpreter",
    "harness": "dflash-harness",
    "created": "begun",
    "platform": "platform",
    "cpu": "processor",
    "cores": "cores",
    "memory_bytes": "memory",
    "gpus": "GPUs",
    "packages": "packages",
    "variables": "variables",
    "options": "options",
}


def environment_table(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, value) of what environment.json says, in the order of `_NAMES`; what is not known is left out."""
    rows = []
    for key, name in _NAMES.items():
        value = environment.get(key)
        if key == "gpus" and value == []:
            note = environment.get("gpus_note")
            how = "none" if environment.get("gpus_counted", True) else "not known"
            rows.append((name, one_line(f"{how}: {note}", LONGEST_VALUE) if note else "none that nvidia-smi lists"))
        elif value not in (None, "", {}, []):
            rows.append((name, one_line(_value(key, value, environment), LONGEST_VALUE)))
    return rows


def _value(key: str, value: Any, environment: Mapping[str, Any]) -> str:
    if key == "memory_bytes" and isinstance(value, int):
        return f"{value / 2**30:.1f} GiB"
    if key == "cores":
        usable = environment.get("cores_usable")
        return f"{value}, of which {usable} can be used" if usable not in (None, value) else str(value)
    if key == "python" and environment.get("implementation"):
        return f"{value} ({environment['implementation']})"
    if key == "gpus" and isinstance(value, list):
        names = [str(gpu.get("name", "?")) if isinstance(gpu, dict) else str(gpu) for gpu in value]
        drivers = {str(gpu.get("driver")) for gpu in value if isinstance(gpu, dict) and gpu.get("driver")}
        counted = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
        counted += "" if environment.get("gpus_counted", True) else " at least"
        told = [f"driver {', '.join(sorted(drivers))}"] if drivers else []
        return "; ".join([counted, *told, *([str(environment["gpus_note"])] if environment.get("gpus_note") else [])])
    if isinstance(value, dict):
        return plain({name: entry for name, entry in value.items() if entry is not None})
    return plain(value)


def where(environment: Mapping[str, Any]) -> str:
    """The machine in a few words: its GPUs, else its processor; "" when it is not known."""
    gpus = environment.get("gpus")
    if isinstance(gpus, list) and gpus:
        return one_line(_value("gpus", gpus, environment).partition(";")[0], LONGEST_VALUE)
    cores, cpu = environment.get("cores_usable"), environment.get("cpu")
    return one_line(f"{cores} × {cpu}" if cores and cpu else str(cpu or ""), LONGEST_VALUE)


def typed(environment: Mapping[str, Any]) -> str:
    """The command line that made the run, ready to be pasted; "" when it is not known."""
    command = environment.get("command")
    if not isinstance(command, list) or not command:
        return ""
    return clip(shlex.join(str(part) for part in command), LONGEST_COMMAND)


def shown_path(path: Path) -> str:
    """The path as a user at this prompt would write it: short below the working folder, absolute elsewhere."""
    here, full = Path(os.path.abspath(Path.cwd())), Path(os.path.abspath(path))
    return no_option(str(full.relative_to(here)) if full.is_relative_to(here) else str(full))


def no_option(path: str) -> str:
    """`./-odd` for `-odd`, which a command would take for an option."""
    return f"./{path}" if path.startswith("-") else path


class Reruns:
    """Makes the command that runs one scenario of this run again."""

    def __init__(self, run_dir: str, matrix: Matrix | None, environment: Mapping[str, Any]) -> None:
        self._varying = matrix.axes_varying if matrix else ()
        self._base = ["harness", "run", f"{run_dir}/matrix.toml"]
        command = environment.get("command")
        named = isinstance(command, list) and any(str(part).startswith("--python") for part in command)
        executable = environment.get("executable")
        self._python = ["--python", str(executable)] if named and executable else []

    def command(self, scenario: Mapping[str, Any], trials: int) -> str:
        """`harness run …/matrix.toml --only '…' --repeats n` for a scenario of the matrix."""
        parts = [Match(axis, _literal(str(scenario[axis]))) for axis in self._varying]
        only = ["--only", str(And(tuple(parts)) if len(parts) > 1 else parts[0])] if parts else []
        return shlex.join([*self._base, *only, "--repeats", str(max(1, trials)), *self._python])


def _literal(value: str) -> str:
    """A glob that matches this value and, short of a quote that no glob can hold, nothing else."""
    return "".join(f"[{sign}]" if sign in "*?[" else "?" if sign == '"' else sign for sign in value)
