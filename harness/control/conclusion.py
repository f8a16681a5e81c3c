"""What a run folder says in the end: summary, judged expectations, exit code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.judging import judge_run
from harness.analysis.summary import RunSummary, summarise
from harness.control import results
from harness.control.interrupts import EXIT_INTERRUPTED
from harness.core.matrix import Judgement, Matrix

EXIT_HOLDS, EXIT_BROKEN, EXIT_NOTHING = 0, 1, 3


@dataclass(frozen=True)
class RunResult:
    """How a run ended. `judgements` by scenario id."""

    run_dir: Path
    environment: dict[str, Any]
    matrix: Matrix
    summary: RunSummary
    judgements: dict[str, list[Judgement]]
    interrupted: bool
    exit_code: int

    def to_json(self) -> dict[str, Any]:
        """The document of `run --json`."""
        scenarios = []
        for summary in self.summary.scenarios:
            judged = [dataclasses.asdict(judgement) for judgement in self.judgements.get(summary.id, [])]
            scenarios.append({**summary.to_json(), "reason": summary.reason, "judgements": judged})
        return {
            "run_dir": str(self.run_dir.resolve()),
            "environment": self.environment,
            "interrupted": self.interrupted,
            "scenarios": scenarios,
        }


def conclude(
    matrix: Matrix, run_dir: Path, environment: dict[str, Any], repeats: int | None, *, interrupted: bool
) -> RunResult:
    """Summary, judgements and exit code of what a run folder holds: the file is the truth, not the run's
    memory. Raises RunFolderError: a line of its results is no row that can be counted.
    """
    known = {scenario.id: scenario.to_dict() for scenario in matrix.scenarios}
    rows = (
        {**row, "scenario": known[row["scenario_id"]]}
        for row in results.counted_rows(run_dir)
        if row["scenario_id"] in known
    )
    summary = summarise(rows, order=known)
    torch = summary.torch or str(environment["torch"])
    judgements = judge_run(matrix, summary, torch, repeats or matrix.repeats)
    return RunResult(
        run_dir, environment, matrix, summary, judgements, interrupted, exit_code(summary, judgements, interrupted)
    )


def exit_code(summary: RunSummary, judgements: Mapping[str, list[Judgement]], interrupted: bool) -> int:
    """0 every expectation holds, 1 one is broken or a failure unexpected, 3 interrupted, or nothing says
    anything.
    """
    if interrupted:
        return EXIT_INTERRUPTED
    if any(judgement.kind != "met" for judged in judgements.values() for judgement in judged):
        return EXIT_BROKEN
    return EXIT_HOLDS if any(item.conclusive for item in summary.scenarios) else EXIT_NOTHING
