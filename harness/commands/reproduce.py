"""`harness reproduce`: makes a hazard happen by its plan, or says why it cannot."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands.options import Python, Quiet

if TYPE_CHECKING:
    from harness.control.reproduce import Reproduction
    from harness.core.case import Case


class Where(StrEnum):
    """What the plan is run against."""

    program = "program"
    pipeline = "pipeline"


def reproduce(
    hazard: Annotated[
        str, typer.Argument(metavar="HAZARD", help="A hazard of the catalogue, or a file that minimise wrote.")
    ],
    times: Annotated[int, typer.Option("--times", "-n", min=1, metavar="N", help="How many times.")] = 5,
    lock: Annotated[
        str | None, typer.Option(metavar="STRATEGY", help="Under this lock strategy: can it still happen?")
    ] = None,
    against: Annotated[
        Where | None,
        typer.Option(
            "--in",
            help="The hazard's small program, or the pipeline.  [default: program; with --lock the pipeline]",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="DEV", help="On this device instead of the case's own: cuda:0.", show_default=False),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", min=1, metavar="N", help="Trials that run at the same time; load can change who comes first."
        ),
    ] = 1,
    python: Python = None,
    timeout: Annotated[float, typer.Option(min=1.0, metavar="S", help="Seconds a trial may take.")] = 300.0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where trials land.  [default: reports/reproduce-<hazard>-<UTC time>]", show_default=False
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a hazard's plan, each time in a fresh process, and print the witness: who was where.

    Exit codes: 0 reproduced every time and never in the counterfactual, 1 not, 2 bad input, 3 it cannot run here, was
    interrupted, or no trial of it, or of its counterfactual, said anything.
    """
    from harness.commands.output import emit, emit_report
    from harness.control.cases import find_case, on_device, trials_folder
    from harness.control.environment import describe_environment
    from harness.control.interpreter import find_python
    from harness.control.reproduce import not_run
    from harness.control.skips import skip_reason, visible_gpus
    from harness.core.errors import UserError
    from harness.report.reproduction import cannot_happen, effect_of, measured, print_reproduction

    case = find_case(hazard, lock=lock, where=None if against is None else against.value)
    if device is not None:
        case = on_device(case, device)
    environment = describe_environment(find_python(python))
    if environment["torch"] is None:
        raise UserError(f"{environment['executable']} has no torch; install it there, or name another with --python")
    gpus = visible_gpus(environment) if environment.get("cuda") else 0
    why_not = cannot_happen(case, str(environment["torch"]), gpus)
    reason = skip_reason(case.scenario, environment, case.settings)
    if reason:
        nothing = not_run(case, reason, str(environment["torch"]))
        if json_output:
            told = {"why_not": why_not, "effect": "", "measured": {}}
            document = {**nothing.to_json(), **told, "skipped": reason, "environment": environment, "run_dir": None}
            emit(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")
        else:
            emit(f"{case.name}: cannot run here: {reason}\n")
        raise typer.Exit(nothing.exit_code)
    if why_not and not json_output:
        emit(f"{case.name}: it cannot happen here: {why_not}\n")
    folder = trials_folder(out, f"reproduce-{case.name}")
    found = _run(case, str(environment["executable"]), folder, times, jobs=jobs, timeout=timeout, quiet=quiet)
    told = {"why_not": why_not, "effect": effect_of(found), "measured": measured(found)}
    document = {**found.to_json(), **told, "environment": environment, "run_dir": str(folder.resolve())}
    (folder / "reproduce.json").write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    if json_output:
        emit(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")
    else:
        emit_report(lambda console: print_reproduction(console, found))
    raise typer.Exit(found.exit_code)


def _run(
    case: Case, python: str, folder: Path, times: int, *, jobs: int, timeout: float, quiet: bool
) -> Reproduction:
    """What came of the times. Raises typer.Exit on Ctrl-C, having said how many were done; after the last all is told."""
    from harness.control.caches import PrimedExecutor
    from harness.control.executors import make_executor
    from harness.control.interrupts import EXIT_INTERRUPTED, Interrupts, say_ending
    from harness.control.reproduce import Stopped, reproduce
    from harness.report.facts import shown_path

    def note(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    found: Reproduction | None = None
    try:
        with Interrupts(say_ending, f"; what has run is in {shown_path(folder)}") as interrupts:
            executor = PrimedExecutor(make_executor("local", python=python, jobs=jobs), folder)
            try:
                found = reproduce(case, executor, folder, times=times, note=note, timeout_s=timeout)
            finally:
                with interrupts.held():
                    executor.close()
    except KeyboardInterrupt as stopped:
        if found is None:
            done = stopped.done if isinstance(stopped, Stopped) else 0
            rest = ", not the counterfactual" if done == times else ""
            place = f"; the trials are in {shown_path(folder)}" if (folder / "trials").is_dir() else ""
            typer.echo(f"interrupted: {done} of {times} times done{rest}{place}", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
    assert found is not None
    return found
