"""What a report of a run is made of."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.analysis.summary import RunSummary
from harness.core.matrix import Judgement
from harness.report.names import short_name
from harness.report.wording import plural


@dataclass(frozen=True)
class RunView:
    """A finished or interrupted run, ready to be shown.

    `where` names the machine; `run_dir`, `resume` (the command that continues) and `report` (the page, "" when there is
    none) are as a user would type them, and so is `bisect`, the command that finds the cheapest safe strategy; `jobs`:
    how many trials run at the same time; `names` maps scenario ids to short names.
    """

    matrix: str
    run_dir: str
    summary: RunSummary
    varying: Sequence[str]
    judgements: Mapping[str, Sequence[Judgement]]
    torch: str
    where: str
    interrupted: bool = False
    verbose: bool = False
    resume: str = ""
    report: str = ""
    jobs: int = 1
    bisect: str = ""
    names: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        named = {item.id: short_name(item.scenario, self.varying) for item in self.summary.scenarios}
        object.__setattr__(self, "names", named)

    @classmethod
    def of_run(
        cls,
        summary: RunSummary,
        judgements: Mapping[str, Sequence[Judgement]],
        environment: Mapping[str, Any],
        **rest: Any,
    ) -> RunView:
        """A view whose torch and machine come from environment.json; `rest` are the other fields."""
        gpus = [str(gpu["name"]) for gpu in environment["gpus"]]
        options = environment.get("options") or {}
        matrix = options.get("matrix")
        rest.setdefault("jobs", options.get("jobs") or 1)
        rest.setdefault("bisect", f"harness bisect locks {shlex.quote(str(matrix))}" if matrix else "")
        where = ", ".join(f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus))
        return cls(
            summary=summary,
            judgements=judgements,
            torch=summary.torch or str(environment["torch"]),
            where=where or plural(environment["cores_usable"], "CPU core"),
            **rest,
        )
