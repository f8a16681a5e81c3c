"""`harness run`: run a matrix, show how it goes, and say what it showed."""

from __future__ import annotations

import json
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import MatrixArgument, Only, Python, Quiet, Verbose


class ExecutorName(StrEnum):
    """Where trials can run."""

    local = "local"
    ray = "ray"


def run(
    matrix: MatrixArgument = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1, metavar="N", help="Trials that run at the same time.  [default: 1]", show_default=False
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Trials of each scenario, instead of the matrix's number.")
    ] = None,
    only: Only = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run folder.  [default: reports/<matrix>-<UTC time>]", show_default=False),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the run in --out, or else in reports/latest. Options that are not given again are as they were; "
            "--only 'lock=*' means all scenarios again.",
        ),
    ] = False,
    python: Python = None,
    executor: Annotated[
        ExecutorName | None, typer.Option(help="Where trials run.  [default: local]", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="S", help="Seconds a trial may take, instead of the matrix's number."),
    ] = None,
    update_expect: Annotated[
        bool, typer.Option("--update-expect", help="Write what was seen into the matrix file, as what it expects.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a matrix and report what each scenario showed.

    Exit codes: 0 every expectation holds, 1 one is broken or a failure unexpected, 2 bad input,
    3 interrupted, or no trial says anything.

    Lock strategies of a matrix: none, per_call, per_forward, first_step, warmup_barrier, compile_gate, warm_gate,
    every_step, thread_local_fx, process, each:REGION+REGION and span:REGION..REGION, with the regions step, mask,
    forward, attention, loss and backward.
    """
    from rich.console import Console

    from harness.commands.output import emit, emit_report
    from harness.control.executors import check_executor, make_executor
    from harness.control.expect_file import check_update, file_to_update, take_over
    from harness.control.resuming import RunOptions, widened
    from harness.control.rundir import as_typed
    from harness.control.session import open_session, run_session
    from harness.core.errors import RunFolderError, UserError
    from harness.report.html import write_report
    from harness.report.progress import make_progress
    from harness.report.terminal import print_run
    from harness.report.view import RunView

    options = RunOptions(matrix, out, resume, python, executor and executor.value, jobs, repeats, only, timeout)
    progress = make_progress(Console(stderr=True), matrix or "harness run", quiet=quiet, verbose=verbose)
    check_executor(options.executor or "local")
    expects = file_to_update(matrix, None) if update_expect and not resume else None
    difference, failed = "", None
    with open_session(options, progress.note) as session:
        if update_expect and resume:
            expects = file_to_update(matrix, session.folder.path)
        if expects is not None:
            check_update(expects, session.matrix)
        progress.varying = session.matrix.axes_varying
        with progress:
            result = run_session(session, make_executor, progress)
        if expects is not None and result.interrupted:
            progress.note(f"interrupted, so the expectations of {expects} stay as they are")
        elif expects is not None:
            try:
                result, difference = take_over(expects, session.folder, result, session.options.repeats)
                if not difference:
                    progress.note(f"nothing to update in {expects}")
            except UserError as error:  # told last: what was run is shown all the same
                failed = error
        # Still inside: the folder is locked, so no other run writes to it meanwhile.
        report = ""
        try:
            report = as_typed(write_report(result.run_dir))
        except (RunFolderError, OSError) as error:  # a full disk must not cost the table or the exit code
            progress.note(f"no report: {error}")
    if json_output:
        if report:
            progress.note(f"report: {report}")
        emit(json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        folder = as_typed(result.run_dir)
        again = f"harness run --resume --out {shlex.quote(folder)}"
        if not result.interrupted and (only := widened(result.matrix, result.summary, session.options.only)):
            again += f" --only {shlex.quote(only)}"
        view = RunView.of_run(
            result.summary,
            result.judgements,
            result.environment,
            matrix=Path(str(result.environment["options"]["matrix"])).stem,
            varying=result.matrix.axes_varying,
            run_dir=folder,
            interrupted=result.interrupted,
            verbose=verbose,
            resume=again,
            report=report,
        )
        emit_report(lambda console: print_run(console, view))
    if difference and json_output:
        progress.note(f"updated {expects}")
        typer.echo(difference, err=True, nl=False)
    elif difference:
        emit(f"\nUpdated {expects}:\n\n{difference}")
    if failed is not None:
        raise failed
    raise typer.Exit(result.exit_code)
