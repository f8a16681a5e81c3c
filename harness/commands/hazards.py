"""`harness hazards`: the catalogue, and what of it applies to the torch at hand."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from harness.commands.options import Python


def hazards(
    hazard: Annotated[
        str | None, typer.Argument(metavar="[HAZARD]", help="Show this one whole.", show_default=False)
    ] = None,
    python: Python = None,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="List those too that cannot happen here.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document, always of all.")] = False,
) -> None:
    """List what is known to go wrong, and say what of it applies to the torch at hand.

    Exit codes: 0, or 2 for bad input.
    """
    from harness.commands.output import emit, emit_report
    from harness.control.environment import describe_environment
    from harness.control.interpreter import find_python
    from harness.control.skips import visible_gpus
    from harness.hazards import HAZARDS, find
    from harness.report.catalogue import At, hazard_json, hazard_whole_json, print_hazard, print_hazards

    one = find(hazard) if hazard is not None else None
    environment = describe_environment(find_python(python))
    gpus = visible_gpus(environment) if environment["cuda"] else 0
    counted = not environment["cuda"] or environment.get("gpus_counted", True)
    at = At(environment["torch"], gpus, environment["executable"], python or "", counted)
    if json_output:
        document = [hazard_json(each, at) for each in HAZARDS] if one is None else hazard_whole_json(one, at)
        emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    elif one is None:
        emit_report(lambda console: print_hazards(console, HAZARDS, at, show_all=show_all))
    else:
        emit_report(lambda console: print_hazard(console, one, at))
