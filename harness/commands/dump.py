"""`harness dump`: a process that already hangs, watched or not."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def dump(
    pid: Annotated[str, typer.Argument(metavar="PID", help="The process, or with --tree the launcher of all ranks.")],
    tree: Annotated[bool, typer.Option("--tree", help="All Python processes below it too; the odd rank is named.")] = False,
    native: Annotated[bool, typer.Option(help="Native frames as well, where they may be read.")] = True,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that each look at a process may take.", min=0.1)
    ] = 15.0,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say why a process does not go on: who waits for whom, the deadlock or the culprit, the hazard of the catalogue.

    Stacks are read by py-spy from outside, twice; the process itself is asked nothing, and goes on as before.
    Exit codes: 0 a culprit or a hazard is named, 1 nothing is known to be wrong, 2 bad input.
    """
    from harness.commands.output import emit
    from harness.control.dump import dump_process, dump_tree
    from harness.report.process_dump import process_json, process_text, tree_json, tree_text

    number = _number(pid)
    if tree:
        found = dump_tree(number, native=native, timeout_s=timeout)
        document, text, explained = tree_json(found), tree_text(found), found.explained
    else:
        one = dump_process(number, native=native, timeout_s=timeout)
        document, text, explained = process_json(one), process_text(one), one.explained
    emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n" if json_output else text)
    raise typer.Exit(0 if explained else 1)


def _number(pid: str) -> int:
    """Raises UserError for what is no number."""
    from harness.core.errors import UserError

    try:
        return int(pid)
    except ValueError:
        shown = pid if pid and pid.isprintable() else ascii(pid)
        raise UserError(f"PID {shown}: not a process ID; give a number (ps -ef shows them)") from None
