"""`harness run` from its options to its exit code: matrix, run folder, trials, summary, judgement."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.control import matrices, results, resuming, rundir
from harness.control.caches import WarmCaches
from harness.control.conclusion import RunResult, conclude
from harness.control.environment import describe_environment
from harness.control.executors import check_executor
from harness.control.foreign import check_workloads
from harness.control.interpreter import find_python
from harness.control.interrupts import Interrupts, continues
from harness.control.listener import Listener
from harness.control.pipeline_paths import check_paths
from harness.control.references import References
from harness.control.request import Executor
from harness.control.resuming import RunOptions
from harness.control.rundir import RunFolder
from harness.control.runner import Plan, carry_out, make_plan
from harness.control.skips import skip_reason
from harness.core.errors import RunFolderError, UserError, WhereError
from harness.core.matrix import Matrix, load_matrix
from harness.core.scenario import Scenario
from harness.core.where import parse_where


@dataclass(frozen=True)
class Session:
    """A run that is ready to start: its folder is made and locked."""

    matrix: Matrix
    scenarios: tuple[Scenario, ...]
    folder: RunFolder
    environment: dict[str, Any]
    plan: Plan
    options: RunOptions


class MakeExecutor(Protocol):
    """`harness.control.executors.make_executor`."""

    def __call__(self, name: str, *, python: str | None, jobs: int) -> Executor:
        """The executor of that name, ready to run trials."""


@contextmanager
def open_session(options: RunOptions, note: Callable[[str], None]) -> Iterator[Session]:
    """Check everything that can be checked, then make or reopen the run folder.

    `note` is told what the user should know. Raises UserError before anything is written, as far as that can
    be known.
    """
    resumed = resuming.resumed_folder(options) if options.resume else None
    before = resuming.read_earlier(resumed) if resumed else {}
    options = resuming.with_earlier(options, before)
    check_executor(options.executor or "local")
    matrix = _matrix(options, resumed)
    scenarios = select(matrix, options.only)
    if resumed is None and options.executor == "local":
        check_paths(matrix, scenarios)
    environment = describe_environment(find_python(options.python))
    if environment["torch"] is None:
        raise UserError(f"{environment['executable']} has no torch; install it there, or name another with --python")
    _refuse_other_software(resumed, before, environment)
    check_workloads(scenarios, environment["executable"])
    environment |= {**before, "executable": environment["executable"]}  # what that lacks is as it is here and now
    path = resumed or options.out or rundir.default_folder(Path(matrix.file).stem)
    with rundir.open_run(path, resume=options.resume) as folder:
        lacking = not (path / results.MATRIX).exists()
        if resumed:
            resuming.check_rows(path, matrix, Path(matrix.file) if lacking else None)
        if lacking:
            folder.write(results.MATRIX, matrix.text)
        folder.open_results(note)
        plan = make_plan(
            matrix,
            scenarios,
            folder,
            repeats=options.repeats or matrix.repeats,
            timeout_s=options.timeout_s,
            skip=lambda scenario: skip_reason(scenario, environment, matrix.pipeline),
        )
        environment["options"] = resuming.recorded(options, matrix, before, folder, plan, note)
        folder.write(results.ENVIRONMENT, rundir.dump_environment(environment))
        problem = rundir.point_latest(path)
        if problem:
            note(problem)
        if resumed and plan.requests and options.executor == "local":  # a run that is whole needs them no more
            check_paths(matrix, scenarios)
        yield Session(matrix, scenarios, folder, environment, plan, options)


def run_session(session: Session, make_executor: MakeExecutor, listener: Listener) -> RunResult:
    """Run what is left to run, and judge all that is in the folder.

    No executor is made when nothing is left.
    """
    interrupted = False
    with Interrupts(listener.interrupting, continues("harness run", session.folder.path)) as interrupts:
        if session.plan.requests:
            try:
                options = session.options
                executor = make_executor(
                    options.executor or "local", python=session.environment["executable"], jobs=options.jobs or 1
                )
                try:
                    interrupted = carry_out(
                        session.plan,
                        session.folder,
                        executor,
                        listener,
                        held=interrupts.held,
                        references=References(
                            session.folder.path, dtype=str(session.matrix.pipeline.get("dtype", "float32"))
                        ),
                        caches=WarmCaches(session.folder.path),
                    )
                finally:
                    with interrupts.held():
                        executor.close()
            except KeyboardInterrupt:
                interrupted = True
        else:
            interrupted = carry_out(session.plan, session.folder, _NoExecutor(), listener, held=interrupts.held)
    return conclude(
        session.matrix, session.folder.path, session.environment, session.options.repeats, interrupted=interrupted
    )


def select(matrix: Matrix, only: str | None) -> tuple[Scenario, ...]:
    """The scenarios that `--only` means. Raises WhereError: it cannot be read, or means none."""
    if only is None:
        return matrix.scenarios
    try:
        where = parse_where(only)
    except WhereError as error:
        raise WhereError(f"--only: {error}") from None
    chosen = tuple(scenario for scenario in matrix.scenarios if where.matches(scenario))
    if chosen:
        return chosen
    values = "; ".join(f"{axis}: {', '.join(_values(matrix, axis))}" for axis in matrix.axes_varying)
    has = f"what varies in {matrix.file} is {values}" if values else f"nothing varies in {matrix.file}"
    raise WhereError(f"--only '{only}' matches no scenario; {has}")


def _values(matrix: Matrix, axis: str) -> list[str]:
    return list(dict.fromkeys(str(scenario.value(axis)) for scenario in matrix.scenarios))


def _matrix(options: RunOptions, resumed: Path | None) -> Matrix:
    """The matrix to run; of a resumed run the one in its folder, which a named one must equal.

    Raises RunFolderError: it does not, or the folder has none and none is named.
    """
    begun = resumed / results.MATRIX if resumed else None
    if begun is None or not begun.exists():
        if resumed is not None and options.matrix is None:
            earlier = results.read_environment(resumed).get("options") or {}
            command = f"harness run {shlex.quote(earlier.get('matrix') or 'MATRIX')} --resume --out {shlex.quote(str(resumed))}"
            raise RunFolderError(f"{resumed} has no {results.MATRIX}; name the matrix that it was begun with: {command}")
        return load_matrix(matrices.find_matrix(options.matrix))
    if options.matrix is None:
        return load_matrix(begun)
    asked = load_matrix(matrices.find_matrix(options.matrix))
    assert resumed is not None
    known = load_matrix(begun)
    matrices.refuse_other_matrix(resumed, known.text, asked.text, Path(asked.file))
    return known


def _refuse_other_software(resumed: Path | None, before: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
    """Trials of two torch versions are never counted together."""
    for key in ("torch", "python"):
        if before and before.get(key) != environment[key]:
            raise RunFolderError(
                f"{resumed} was begun with {key} {before.get(key)}, this is {key} {environment[key]}: "
                "name that interpreter with --python, or choose another --out"
            )


class _NoExecutor:
    """Stands in when every trial is finished or skipped."""

    def run(self, trials: Any, on_start: Any, on_row: Any) -> None:
        raise AssertionError("there is nothing to run")

    def close(self) -> None:
        return
