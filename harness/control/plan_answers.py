"""What a bisection's plans said, a line each in its folder: of each scenario as it ended, and the answer of all.

What a plan said of single scenarios before it had its answer is not asked again, and counted until then.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from harness.analysis.ladder import PlanResult
from harness.core.errors import RunFolderError

PLANS = "plans.jsonl"


def append_plan(run_dir: Path, result: PlanResult) -> None:
    """Keep an answer, or one of a single scenario, for `--resume`."""
    path = run_dir / PLANS
    if path.exists():
        whole = path.read_bytes()
        os.truncate(path, whole.rfind(b"\n") + 1)  # of a line that a kill or a full disk has cut
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(dataclasses.asdict(result), default=str) + "\n")


def read_plans(run_dir: Path) -> list[PlanResult]:
    """All lines of a folder, in order; a cut last one is passed over.

    Raises RunFolderError for another line that is none.
    """
    try:
        text = (run_dir / PLANS).read_text("utf-8")
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        try:
            found.append(PlanResult(**json.loads(line)))
        except (ValueError, TypeError) as error:
            if line.endswith("\n"):
                raise RunFolderError(f"{run_dir / PLANS}, line {number}: not an answer of a plan") from error
    return found
