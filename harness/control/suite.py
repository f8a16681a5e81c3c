"""A matrix file as a suite of tests: its scenarios are run and judged one at a time, by any process."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.errors import ErrorGroup
from harness.analysis.selection import where_for
from harness.analysis.summary import ScenarioSummary, summarise
from harness.control import executors, results, rundir
from harness.control.caches import WarmCaches
from harness.control.environment import describe_environment
from harness.control.foreign import check_workloads
from harness.control.interpreter import find_python
from harness.control.pipeline_paths import check_paths
from harness.control.request import Executor, Row, TrialRequest
from harness.control.rows import Ending, trial_row
from harness.control.runner import carry_out, make_plan, trial_id
from harness.control.shared import SharedReferences, SharedRunFolder, join_shared
from harness.control.skips import skip_reason
from harness.core.errors import SettingError, UserError
from harness.core.matrix import Judgement, Matrix, judge
from harness.core.scenario import Scenario


@dataclass(frozen=True)
class Judged:
    """What the trials of a scenario came to; `judgements` is empty where nothing could be judged."""

    summary: ScenarioSummary
    errors: tuple[ErrorGroup, ...]
    judgements: tuple[Judgement, ...]
    rows: tuple[Row, ...]

    @property
    def broken(self) -> tuple[Judgement, ...]:
        """The judgements that make the test fail."""
        return tuple(judgement for judgement in self.judgements if judgement.kind != "met")


class LazyExecutor:
    """This process's executor: made for its first trial, kept for all that follow."""

    def __init__(self, python: str, jobs: int) -> None:
        self._python = python
        self._jobs = jobs
        self._made: Executor | None = None

    def get(self) -> Executor:
        """The executor, ready to run trials."""
        if self._made is None:
            self._made = executors.make_executor("local", python=self._python, jobs=self._jobs)
        return self._made

    def close(self) -> None:
        """End every process that is left; the next trial gets a new executor."""
        made, self._made = self._made, None
        if made is not None:
            made.close()


class Suite:
    """The scenarios of one matrix in one run folder, which other processes may fill as well."""

    def __init__(
        self, matrix: Matrix, folder: SharedRunFolder, environment: Mapping[str, Any], executor: LazyExecutor
    ) -> None:
        self.matrix = matrix
        self.folder = folder
        self.environment = environment
        self.repeats = int(environment["options"]["repeats"])
        self._executor = executor
        self._references = SharedReferences(folder.path, str(matrix.pipeline.get("dtype", "float32")))

    def run(self, scenario: Scenario) -> Judged:
        """Run the scenario's trials that are not finished, and judge all of them.

        Raises KeyboardInterrupt when Ctrl-C ended them. Whatever else breaks in, such as a time limit that is an
        exception, ends them too: their rows say `interrupted`, and no process of theirs is left. Raises RunFolderError
        when the run folder was removed, or replaced by another: the trials would leave no rows.
        """
        self.folder.check()
        self.folder.learn(trial_id(scenario, repeat) for repeat in range(self.repeats))
        plan = make_plan(
            self.matrix,
            [scenario],
            self.folder,
            repeats=self.repeats,
            skip=lambda scenario: skip_reason(scenario, self.environment, self.matrix.pipeline),
        )
        heard = _Rows()
        try:
            executor = self._executor.get() if plan.requests else _IDLE
            interrupted = carry_out(
                plan,
                self.folder,
                executor,
                heard,
                references=self._references,
                caches=WarmCaches(self.folder.path, apart=True),  # no other process runs this scenario
            )
        except BaseException as error:
            self._executor.close()
            if isinstance(error, Exception):
                self.folder.check()  # else it is the reason, and there is no row to be written
            for request, began in heard.running.values():
                ending = Ending(signal.SIGKILL, "killed", time.monotonic() - began, None)
                self.folder.append(trial_row(request, ending))
            raise
        if interrupted:
            raise KeyboardInterrupt
        self.folder.check()
        return self._judged(scenario, heard.rows if not plan.already else self._rows(scenario))

    def _rows(self, scenario: Scenario) -> list[Row]:
        return [row for row in results.read_rows(self.folder.path) if row["scenario_id"] == scenario.id]

    def _judged(self, scenario: Scenario, rows: Sequence[Row]) -> Judged:
        whole = summarise(rows)
        (summary,) = whole.scenarios
        torch = whole.torch or str(self.environment["torch"])
        judged = judge(scenario, summary.labels, torch, self.matrix.expectations)
        return Judged(summary, whole.errors, tuple(judged), tuple(rows))


def describe(python: str | None, command: Sequence[str]) -> dict[str, Any]:
    """The environment of a suite. Raises UserError: no such interpreter, or it has no torch."""
    environment = describe_environment(find_python(python))
    if environment["torch"] is None:
        raise UserError(f"{environment['executable']} has no torch; install it there, or name another with --python")
    return {**environment, "command": list(command)}


def check_suite(matrix: Matrix, scenarios: Sequence[Scenario], python: str) -> None:
    """Raises SettingError, as `harness run` does: a file or a workload is named of which no trial can find anything."""
    check_paths(matrix, scenarios)
    try:
        check_workloads(scenarios, python)
    except SettingError as error:
        raise SettingError(f"{matrix.file}: {error}") from None


def begin_suite(
    matrix: Matrix,
    folder: SharedRunFolder,
    environment: Mapping[str, Any],
    *,
    selected: Collection[Scenario],
    repeats: int | None,
    jobs: int,
) -> dict[str, Any]:
    """Fill the new run folder of a suite, so that `harness run --resume` finds its way there; its environment.

    `selected` are the scenarios that have tests; `jobs`: how many trials run at the same time, in all processes together.
    Raises RunFolderError: it cannot be written.
    """
    others = [scenario for scenario in matrix.scenarios if scenario not in selected]
    options = {
        "matrix": matrix.file,
        "repeats": repeats or matrix.repeats,
        "only": " or ".join(where_for(selected, others)) if others else None,
        "timeout_s": None,
        "executor": "local",
        "jobs": jobs,
    }
    folder.write(results.MATRIX, matrix.text)
    written = {**environment, "options": options}
    folder.write(results.ENVIRONMENT, rundir.dump_environment(written))
    folder.open_results(lambda note: None)  # a new file has no cut line to tell of
    rundir.point_latest(folder.path)
    return written


def join_suite(matrix: Matrix, path: Path, executor: LazyExecutor) -> Suite:
    """The suite of a run folder that another process of this session has made."""
    return Suite(matrix, join_shared(path), results.read_environment(path), executor)


class _Rows:
    """Keeps the rows of one scenario, and which of its trials run."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.running: dict[str, tuple[TrialRequest, float]] = {}

    def begin(self, total: int, already: int) -> None:
        return

    def references(self, count: int) -> None:
        return

    def reference_started(self, request: TrialRequest) -> None:
        return

    def reference_ended(self, row: Row) -> None:
        return

    def started(self, request: TrialRequest) -> None:
        self.running[request.trial_id] = (request, time.monotonic())

    def waits(self, row: Row) -> None:
        self.running.pop(row["trial"], None)

    def ended(self, row: Row) -> None:
        self.rows.append(row)
        self.running.pop(row["trial"], None)

    def interrupting(self) -> None:
        return


class _Idle:
    """Stands in where every trial is finished or skipped."""

    def run(self, trials: Any, on_start: Any, on_row: Any) -> None:
        raise AssertionError("there is nothing to run")

    def close(self) -> None:
        return


_IDLE = _Idle()
