"""A run folder, read once: what every kind of report of it is made from."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.analysis.judging import Standing, judge_run, standings
from harness.analysis.summary import RunSummary, ScenarioSummary
from harness.control.results import ENVIRONMENT, MATRIX, RESULTS
from harness.control.rundir import TRIALS
from harness.core.axes import AXES, Value
from harness.core.errors import RunFolderError, UserError
from harness.core.matrix import Judgement, Matrix
from harness.core.scenario import Scenario
from harness.core.where import parse_where
from harness.report.facts import Reruns, shown_path
from harness.report.gather import Gathered, gather
from harness.report.grid import varying
from harness.report.names import short_name
from harness.report.source import Source, open_source
from harness.report.text import clip
from harness.report.trial_events import read_document

LONGEST_NAME = 300
_OF_A_PLAN = re.compile(r"\d{3,}-(plan|counterfactual)")


@dataclass(frozen=True)
class RunData:
    """`not_run`: scenarios that were to run and have no row yet.

    `judgements` by scenario id, and `standings` to each expectation by itself; where nothing could be judged, `unjudged`
    says why. `torch`: what the first trial ran under.
    """

    source: Source
    gathered: Gathered
    summary: RunSummary
    not_run: Mapping[str, Scenario]
    judgements: Mapping[str, Sequence[Judgement]]
    standings: Sequence[Standing]
    unjudged: str
    torch: str

    @property
    def environment(self) -> Mapping[str, Any]:
        """environment.json."""
        return self.source.environment

    @property
    def matrix(self) -> Matrix | None:
        """The matrix of the folder, when it can be read."""
        return self.source.matrix

    @cached_property
    def torches(self) -> str:
        """All that the trials ran under: one version, or the report says that there are several."""
        return ", ".join(dict.fromkeys(torch for torch, _ in self.gathered.software)) or self.torch

    @cached_property
    def run_dir(self) -> str:
        """The folder as a user would type it."""
        return shown_path(self.source.path)

    @cached_property
    def values(self) -> dict[str, Mapping[str, Value]]:
        """Scenario id → its value on every axis; those that did not run last."""
        ran: dict[str, Mapping[str, Value]] = {item.id: item.scenario for item in self.summary.scenarios}
        return ran | {name: scenario.to_dict() for name, scenario in self.not_run.items()}

    @cached_property
    def varying(self) -> tuple[str, ...]:
        """The axes that tell scenarios apart, in axis order: those of the matrix, as everywhere else, and those in which the
        rows differ besides. In a bisection's that is the schedule, which its matrix does not vary."""
        of_matrix = self.matrix.axes_varying if self.matrix is not None else ()
        differing = varying(self.values)
        return tuple(axis.name for axis in AXES if axis.name in of_matrix or axis.name in differing)

    @cached_property
    def names(self) -> dict[str, str]:
        """Scenario id → its short name."""
        return {name: clip(short_name(values, self.varying), LONGEST_NAME) for name, values in self.values.items()}

    @cached_property
    def by_id(self) -> dict[str, ScenarioSummary]:
        """The scenarios that have rows."""
        return {item.id: item for item in self.summary.scenarios}

    @cached_property
    def in_matrix(self) -> frozenset[str]:
        """The ids of the matrix' scenarios."""
        return frozenset(scenario.id for scenario in self.matrix.scenarios) if self.matrix else frozenset()

    @cached_property
    def _reruns(self) -> Reruns:
        return Reruns(self.run_dir, self.matrix, self.environment)

    def command(self, scenario_id: str) -> str:
        """What runs a scenario again, as often as it ran here; "" where the matrix does not name it."""
        if scenario_id not in self.in_matrix or scenario_id not in self.values:
            return ""
        item = self.by_id.get(scenario_id)
        return self._reruns.command(self.values[scenario_id], item.trials if item else 1)


def read_run(path: Path) -> RunData:
    """Read a run folder. Raises RunFolderError: it is none, cannot be read, or a newer harness wrote it."""
    source = open_source(path)
    _refuse_plans(path)
    gathered = gather(source.rows())
    options = source.environment.get("options")
    options = options if isinstance(options, dict) else {}
    planned = _planned(source.matrix, options.get("only"))
    summary = gathered.of_run(planned)
    torch = summary.torch or str(source.environment.get("torch") or "unknown")
    ran = {item.id for item in summary.scenarios}
    not_run = {name: scenario for name, scenario in planned.items() if name not in ran}
    repeats = options.get("repeats")
    if not isinstance(repeats, int) or repeats < 1:
        repeats = source.matrix.repeats if source.matrix else 1
    judgements, stand, unjudged = _judged(source.matrix, summary, not_run, torch, repeats)
    return RunData(source, gathered, summary, not_run, judgements, stand, unjudged, torch)


def _refuse_plans(path: Path) -> None:
    """Raises RunFolderError for the folder of a plan's trials, which has no rows: of a run it would look like an empty one."""
    if any((path / name).exists() for name in (RESULTS, MATRIX, ENVIRONMENT)) or not (path / TRIALS).is_dir():
        return
    named = sorted(folder.name for folder in (path / TRIALS).iterdir() if _OF_A_PLAN.fullmatch(folder.name))
    if named:
        told = str(read_document(path / "reproduce.json").get("trial") or "").rpartition("/")[2]
        trial = path / TRIALS / (told if told in named else named[0])
        raise RunFolderError(
            f"{path} holds the trials of a plan (harness reproduce), not a run: there is no page of it; "
            f"look at one trial with harness explain {shlex.quote(shown_path(trial))}, "
            "or with harness trace, upstream or replay of that folder"
        )


def _planned(matrix: Matrix | None, only: object) -> dict[str, Scenario]:
    """The scenarios that were to run, by id."""
    if matrix is None:
        return {}
    chosen = matrix.scenarios
    if isinstance(only, str):
        try:
            where = parse_where(only)
        except UserError:
            return {}  # another version's words; what ran is in the rows
        chosen = tuple(scenario for scenario in chosen if where.matches(scenario))
    return {scenario.id: scenario for scenario in chosen}


def _judged(
    matrix: Matrix | None, summary: RunSummary, not_run: Mapping[str, Scenario], torch: str, repeats: int
) -> tuple[Mapping[str, Sequence[Judgement]], Sequence[Standing], str]:
    """Judgements, standings, and why there are none."""
    if matrix is None:
        return {}, (), "the matrix of this run cannot be read"
    try:
        return judge_run(matrix, summary, torch, repeats), standings(matrix, summary, not_run, torch, repeats), ""
    except UserError as error:  # a torch whose version is no version, and an expectation that asks for it
        return {}, (), str(error)
