"""The suites of a test session, as one of its processes sees them: who makes run folders, who joins them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.control.conclusion import RunResult, conclude
from harness.control.interpreter import find_python
from harness.control.shared import SharedRunFolder
from harness.control.suite import LazyExecutor, Suite, begin_suite, describe, join_suite
from harness.core.matrix import Matrix, load_matrix


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


class Suites:
    """Run folders by matrix file. One process of a session begins and concludes them; any may run tests in them."""

    def __init__(self, options: SuiteOptions) -> None:
        self._options = options
        self._placed: dict[Path, Path] = {}
        self._owned: dict[Path, tuple[Matrix, SharedRunFolder, Mapping[str, Any]]] = {}
        self._suites: dict[Path, Suite] = {}
        self._executor: LazyExecutor | None = None

    def expect(self, files: Iterable[Path]) -> None:
        """Learn which matrix files have tests; every process of the session is told the same."""
        found = sorted(set(files))
        self._placed = place_runs(found, self._options.out, self._options.reports, self._options.stamp)

    def begin(self) -> None:
        """Make the run folders. Raises UserError: one cannot be made, or the interpreter cannot run trials."""
        if not self._placed or self._owned:
            return
        options = self._options
        environment = describe(options.python, options.command)
        for file, path in self._placed.items():
            matrix = load_matrix(file)
            folder, written = begin_suite(matrix, path, environment, repeats=options.repeats, jobs=options.jobs)
            self._owned[file] = (matrix, folder, written)

    def suite(self, file: Path, matrix: Matrix) -> Suite:
        """The suite of a matrix file, ready to run. Raises RunFolderError when no process has begun it."""
        if file not in self._suites:
            if self._executor is None:
                self._executor = LazyExecutor(find_python(self._options.python), self._options.jobs)
            if file in self._owned:
                _, folder, environment = self._owned[file]
                self._suites[file] = Suite(matrix, folder, environment, self._executor)
            else:
                self._suites[file] = join_suite(matrix, self._placed[file], self._executor)
        return self._suites[file]

    def finish(self) -> list[RunResult]:
        """End what is left of this process's trials and free its folders; what those say that it began."""
        if self._executor is not None:
            self._executor.close()
        for suite in self._suites.values():
            suite.folder.close()
        results = []
        for matrix, folder, environment in self._owned.values():
            folder.close()
            results.append(conclude(matrix, folder.path, dict(environment), self._options.repeats, interrupted=False))
        self._owned.clear()
        self._suites.clear()
        return results


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
