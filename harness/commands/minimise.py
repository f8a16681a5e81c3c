"""`harness minimise`: the one pair of events whose order decides between failing and passing, as a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import Python, Quiet


def minimise(
    trial: Annotated[Path, typer.Argument(metavar="TRIAL_DIR", help="The folder of a trial that failed.")],
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="TRIAL_DIR", help="A trial that passed.  [default: one is looked for]", show_default=False
        ),
    ] = None,
    times: Annotated[int, typer.Option("--times", "-n", min=1, metavar="N", help="How often to confirm the plan.")] = 3,
    python: Python = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where trials land.  [default: reports/minimise-<UTC time>]", show_default=False),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Quiet = False,
) -> None:
    """Bisect a failing and a passing schedule to the critical pair of events, and print it as a directed plan.

    Exit codes: 0 the plan reproduced the failure each time and never the other way round, 1 no plan did, 2 bad input, or a
    trial that says nothing.
    """
    from harness.analysis.minimise import NothingToMinimise
    from harness.commands.output import emit
    from harness.control.caches import PrimedExecutor
    from harness.control.cases import trials_folder
    from harness.control.executors import make_executor
    from harness.control.find_trial import find_trial
    from harness.control.interpreter import find_python
    from harness.control.minimise import minimise as search
    from harness.control.minimise import read_pair
    from harness.report.next_step import next_commands, next_lines

    failing, passing = read_pair(find_trial(trial), against and find_trial(against))
    folder = trials_folder(out, "minimise")
    executor = PrimedExecutor(make_executor("local", python=find_python(python)), folder)
    try:
        found = search(
            failing,
            passing,
            executor,
            folder,
            times=times,
            note=lambda text: None if quiet else typer.echo(text, err=True),
        )
    except NothingToMinimise as reason:
        hint = "try again, or name another trial that passed with --against"
        document = {"trial": str(trial), "pair": None, "reason": str(reason), "next": next_commands(failing.folder)}
        said = f"nothing found: {reason}; {hint}\n{next_lines(failing.folder)}"
        emit(json.dumps(document, indent=2) + "\n" if json_output else said)
        raise typer.Exit(1) from None
    finally:
        executor.close()
    file = folder / "case.json"
    if found.case is not None:
        file.write_text(json.dumps(found.case.to_json(), indent=1) + "\n", encoding="utf-8")
    if json_output:
        document = {**found.to_json(), "next": [] if found.case is not None else next_commands(failing.folder)}
        emit(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")
    else:
        emit(f"fails: {found.pair}\n")
        if found.case is None:
            emit(f"{found.reason}\n")
            emit(next_lines(failing.folder))
        else:
            emit(f"{found.case.plan.source()}\n")
            other = found.confirmed.counterfactual_times if found.confirmed is not None else 0
            round_ = f", the other way round 0/{other}" if other else f" ({found.reason})"
            emit(f"reproduced {times}/{times}{round_}; again with: harness reproduce {file}\n")
    raise typer.Exit(0 if found.case is not None else 1)
