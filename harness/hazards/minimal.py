"""Minimal scripts: hazards as plain programs that import torch and nothing of the harness, for bug reports.

A script ends with exit code 1 and says what happened when the hazard came about, with 0 when it did not.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).with_name("scripts")


def script_of(hazard: str) -> str:
    """The program's text; "" where the hazard has none."""
    path = FOLDER / f"{hazard}.py"
    return path.read_text(encoding="utf-8") if hazard in names() else ""


def names() -> list[str]:
    """The hazards that have one."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))
