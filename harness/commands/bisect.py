"""`harness bisect`: the cheapest safe lock strategy, the smallest set of regions, or the version where it changes."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import Only, Quiet, Verbose


class What(StrEnum):
    """What is looked for."""

    locks = "locks"
    regions = "regions"
    torch = "torch"


def bisect(
    what: Annotated[
        What,
        typer.Argument(
            help="locks: the cheapest safe strategy. regions: the smallest set to hold. torch: where it changes.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO|MATRIX",
            help="axis=value,axis=value, or a matrix, in every scenario of which an answer must be safe.",
            show_default=False,
        ),
    ] = None,
    only: Only = None,
    locks: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="The strategies.  [default: the matrix's, or all]", show_default=False),
    ] = None,
    p_min: Annotated[
        float | None,
        typer.Option(metavar="P", help="The failure rate that safe excludes.  [default: 0.05]", show_default=False),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            metavar="A", help="How often that may be wrong of a strategy.  [default: 0.05]", show_default=False
        ),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Go on until every cheaper strategy has failed or is safe as well.")
    ] = False,
    portfolio: Annotated[
        bool | None,
        typer.Option(
            "--portfolio/--no-portfolio",
            help="Also look under schedules that provoke failures.  [default: where scenarios have none of their own]",
            show_default=False,
        ),
    ] = None,
    max_trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after so many trials in all.")
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(metavar="M", help="Stop after so many minutes.")] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, metavar="N", help="Trials that run at the same time.")
    ] = 1,
    python: Annotated[
        list[str] | None,
        typer.Option(metavar="PY", help="The interpreter of the trials; for torch, one for each version, also as A,B."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.001, metavar="S", help="Seconds a trial may take.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run folder.  [default: reports/bisect-…-<UTC time>]", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on in --out, or else in reports/latest.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find the least that must be locked, what it costs, and how sure that is.

    Exit codes: 0 answered, 1 nothing is safe, 2 bad input, 3 undecided, interrupted, or it does not run.
    """
    from rich.console import Console

    from harness.commands.output import emit, emit_report
    from harness.control import executors, plan_oracle
    from harness.control.bisect import open_bisection, run_bisection
    from harness.control.bisect_folder import BisectOptions, listed_pythons
    from harness.control.bisect_question import Asked
    from harness.control.bisect_torch import TorchResult, bisect_torch
    from harness.core.errors import RunFolderError
    from harness.report.bisection import print_bisection, print_versions
    from harness.report.facts import shown_path
    from harness.report.html import write_report
    from harness.report.progress import make_progress

    asked = Asked(what.value, target, only, locks, p_min, alpha, thorough, portfolio, timeout)
    options = BisectOptions(
        asked,
        out=out,
        resume=resume,
        pythons=listed_pythons(python or ()),
        jobs=jobs,
        max_trials=max_trials,
        max_minutes=max_minutes,
    )
    progress = make_progress(Console(stderr=True), f"bisect {what.value}", quiet=quiet, verbose=verbose)
    result: object
    page = ""
    if what is What.torch:
        with progress:
            found = bisect_torch(options, executors.make_executor, progress, progress.note, plan_oracle.oracle_for)
        document, code, folder = found.to_json(), found.exit_code, shown_path(found.run_dir)
        result = found
    else:
        with open_bisection(options, progress.note, progress.plans) as opened, progress:
            answered = run_bisection(opened, executors.make_executor, progress, plan_oracle.oracle_for)
            try:  # while the folder is ours
                page = shown_path(write_report(answered.run_dir))
            except (RunFolderError, OSError) as error:  # a full disk must not cost the answer
                progress.note(f"no report: {error}")
        document, code, folder = answered.to_json(), answered.exit_code, shown_path(answered.run_dir)
        result = answered
    if json_output:
        if page:
            progress.note(f"report: {page}")
        emit(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n")
    elif isinstance(result, TorchResult):
        versions = result
        emit_report(lambda console: print_versions(console, versions, folder, jobs))
    else:
        emit_report(lambda console: print_bisection(console, answered, folder, page))
    raise typer.Exit(code)
