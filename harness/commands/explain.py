"""`harness explain`: the hazard behind a traceback or a dump of stacks, from anywhere."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def explain(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A text with tracebacks or stacks, the output of dump --json, a trial's folder or that of a run with one "
            "trial, or - for standard input.",
        ),
    ],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Name the hazard behind a traceback, a py-spy dump or a faulthandler dump, whatever program it is of.

    Exit codes: 0 at least one hazard fits, 1 none that is known does, 2 bad input.
    """
    from harness.analysis.explain import bare, match
    from harness.analysis.row_signs import joined
    from harness.commands.output import emit, emit_report
    from harness.control.dump_source import read_source
    from harness.report.explanation import explanation_json, print_explanation

    source = read_source(file)
    dump = source.dump
    found = joined(match(dump, torch=source.torch), source.signs, source.torch)
    if not dump and not found:
        dump = bare(source.text)
        found = match(dump)
    if json_output:
        document = explanation_json(dump, found, source.told, ended_well=source.ended_well)
        emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        emit_report(lambda console: print_explanation(console, dump, found, source.told, ended_well=source.ended_well))
    raise typer.Exit(0 if found else 1)
