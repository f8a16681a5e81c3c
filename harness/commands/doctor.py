"""`harness doctor`: the interpreter, its torch, the devices, and which probes work here."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from harness.commands.options import Python


def doctor(
    python: Python = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what is here: interpreter, torch, devices, and which probes work.

    Exit codes: 0 nothing is wrong, 1 something is, 2 bad input, 3 interrupted.
    """
    from harness.commands.output import emit, emit_report
    from harness.control.environment import describe_environment
    from harness.control.interpreter import ask_doctor, find_python
    from harness.control.interrupts import Interrupts
    from harness.report.doctor import print_doctor

    program = find_python(python)
    with Interrupts(lambda: None, then=""):  # SIGTERM as well: what was begun is taken away, as by Ctrl-C
        environment = describe_environment(program)
        answer = ask_doctor(program)
    if json_output:
        emit(json.dumps({**answer, "environment": environment}, indent=2, ensure_ascii=False) + "\n")
    else:
        emit_report(lambda console: print_doctor(console, answer, environment))
    raise typer.Exit(1 if answer["problems"] else 0)
