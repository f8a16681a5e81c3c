"""Minimal scripts: hazards as plain programs that import torch and nothing of the harness, for bug reports.

A script ends with exit code 1 and says what happened when the hazard came about, with 0 when it did not. Where it cannot
on every release, the first line of its text says on which: "torch < 2.14".
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.core.versions import parse_specifier

_TORCH = re.compile(r"torch (<|<=|>|>=|==) (\d+\.\d+)")
FOLDER = Path(__file__).with_name("scripts")


def script_of(hazard: str) -> str:
    """The program's text; "" where the hazard has none."""
    path = FOLDER / f"{hazard}.py"
    return path.read_text(encoding="utf-8") if hazard in names() else ""


def versions_of(hazard: str) -> str:
    """Releases of torch on which the script shows it, as a specifier: "<2.14"; "" for all, or where there is no script."""
    head = script_of(hazard).partition("\n")[0]
    return ",".join(f"{sign}{release}" for sign, release in _TORCH.findall(head))


def shows_on(hazard: str, torch: str) -> bool:
    """Whether the script shows it on this release ("2.14.1+cpu"); "" for one that is not known, which every script does."""
    return not torch or parse_specifier(versions_of(hazard)).contains(torch)


def names() -> list[str]:
    """The hazards that have one."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))
