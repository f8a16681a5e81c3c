"""`harness list`: the scenarios a matrix expands to."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from harness.commands.options import MatrixArgument, Only


def list_scenarios(
    matrix: MatrixArgument = None,
    only: Only = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the scenarios a matrix expands to, one a line."""
    from harness.commands.output import emit
    from harness.control.matrices import find_matrix
    from harness.control.pipeline_paths import check_paths
    from harness.control.session import select
    from harness.core.matrix import load_matrix
    from harness.report.wording import plural

    loaded = load_matrix(find_matrix(matrix))
    scenarios = select(loaded, only)
    check_paths(loaded, scenarios)
    if json_output:
        document = {
            "matrix": loaded.file,
            "repeats": loaded.repeats,
            "axes_varying": list(loaded.axes_varying),
            "scenarios": [{"id": scenario.id, "scenario": scenario.to_dict()} for scenario in scenarios],
        }
        emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        return
    emit("".join(f"{scenario.id}\n" for scenario in scenarios))
    if sys.stdout.isatty():
        total = plural(len(scenarios) * loaded.repeats, "trial")
        emit(f"\n{plural(len(scenarios), 'scenario')} × {plural(loaded.repeats, 'repeat')} = {total}\n")
