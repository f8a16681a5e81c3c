"""The suites of a test session, as one of its processes sees them: who makes run folders, who joins them."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.control.conclusion import RunResult, conclude
from harness.control.interpreter import find_python
from harness.control.shared import SharedRunFolder, begin_shared
from harness.control.suite import LazyExecutor, Suite, begin_suite, check_suite, describe, join_suite
from harness.core.matrix import Matrix, load_matrix
from harness.core.scenario import Scenario


@dataclass(frozen=True)
class SuiteOptions:
    """What was asked for. `out` and `reports` are absolute; `command` is recorded in environment.json."""

    out: Path | None
    reports: Path
    stamp: str
    python: str | None
    repeats: int | None
    jobs: int
    command: Sequence[str]


@dataclass(frozen=True)
class Begun:
    """A run folder that this process has made and holds locked."""

    matrix: Matrix
    folder: SharedRunFolder
    environment: Mapping[str, Any]

    def conclude(self) -> RunResult:
        """What its rows come to; the folder is free for others then. Raises RunFolderError: they are damaged, or gone."""
        with self.folder:
            self.folder.check()
            repeats = self.environment["options"]["repeats"]
            return conclude(self.matrix, self.folder.path, dict(self.environment), repeats, interrupted=False)


class Suites:
    """Run folders by matrix file. One process of a session begins and concludes them; any may run tests in them."""

    def __init__(self, options: SuiteOptions) -> None:
        self._options = options
        self._selected: Mapping[Path, Collection[str]] = {}
        self._placed: dict[Path, Path] = {}
        self._owned: dict[Path, Begun] = {}
        self._suites: dict[Path, Suite] = {}
        self._executor: LazyExecutor | None = None

    def expect(self, selected: Mapping[Path, Collection[str]]) -> None:
        """Learn which matrix files have tests, and of which scenarios, by id; every process of the session is told the
        same."""
        self._selected = selected
        self._placed = place_runs(sorted(selected), self._options.out, self._options.reports, self._options.stamp)

    def begin(self, workers: int) -> None:
        """Make the run folders; `workers` processes will run tests in them at the same time.

        Raises UserError, before any is begun: one cannot be made or holds a run, the interpreter cannot run trials, or
        these would not find what a matrix names.
        """
        if not self._placed or self._owned:
            return
        options = self._options
        environment = describe(options.python, options.command)
        matrices = {file: load_matrix(file) for file in self._placed}
        scenarios = {file: self._scenarios(file, matrix) for file, matrix in matrices.items()}
        for file, matrix in matrices.items():
            check_suite(matrix, scenarios[file], environment["executable"])
        folders: dict[Path, SharedRunFolder] = {}
        with ExitStack() as made:  # all of them, or none
            for file, path in self._placed.items():
                folders[file] = begin_shared(path)
                made.callback(folders[file].close)
            made.pop_all()
        for file, matrix in matrices.items():
            written = begin_suite(
                matrix,
                folders[file],
                environment,
                selected=scenarios[file],
                repeats=options.repeats,
                jobs=options.jobs * workers,
            )
            self._owned[file] = Begun(matrix, folders[file], written)

    def _scenarios(self, file: Path, matrix: Matrix) -> list[Scenario]:
        """Those that have tests; all where an id is none of ours, for another plugin has changed it."""
        ids = set(self._selected[file])
        known = {scenario.id for scenario in matrix.scenarios}
        return [scenario for scenario in matrix.scenarios if scenario.id in ids or not ids <= known]

    def suite(self, file: Path, matrix: Matrix) -> Suite:
        """The suite of a matrix file, ready to run. Raises RunFolderError when no process has begun it."""
        if file not in self._suites:
            if self._executor is None:
                self._executor = LazyExecutor(find_python(self._options.python), self._options.jobs)
            if file in self._owned:
                begun = self._owned[file]
                self._suites[file] = Suite(matrix, begun.folder, begun.environment, self._executor)
            else:
                self._suites[file] = join_suite(matrix, self._placed[file], self._executor)
        return self._suites[file]

    def finish(self) -> list[Begun]:
        """End what is left of this process's trials, and free the folders that others have made; those that it made."""
        if self._executor is not None:
            self._executor.close()
        for file, suite in self._suites.items():
            if file not in self._owned:
                suite.folder.close()
        begun = list(self._owned.values())
        self._owned.clear()
        self._suites.clear()
        return begun


def session_stamp() -> str:
    """What tells this session's run folders from others': UTC time and process, for `tox -p` starts several at once."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"


def place_runs(files: Sequence[Path], out: Path | None, reports: Path, stamp: str) -> dict[Path, Path]:
    """The run folder of each matrix file: `out` itself for a single one, and a folder in it each for several.

    Without `out`, `reports/<matrix>-<stamp>`. Files of one name get numbers.
    """
    taken: dict[str, int] = {}
    placed: dict[Path, Path] = {}
    for file in files:
        number = taken[file.stem] = taken.get(file.stem, 0) + 1
        name = file.stem if number == 1 else f"{file.stem}-{number}"
        if out is None:
            placed[file] = reports / f"{name}-{stamp}"
        else:
            placed[file] = out if len(files) == 1 else out / name
    return placed
