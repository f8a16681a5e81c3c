"""`harness claims`: what people believe about this race, each belief put to the test here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import Python, Quiet


def claims(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[CLAIM]...", help="Only these.", show_default=False)
    ] = None,
    python: Python = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where trials land.  [default: reports/claims-<UTC time>]", show_default=False),
    ] = None,
    witness: Annotated[bool, typer.Option("--witness", help="Also print who was where, for each plan.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Quiet = False,
) -> None:
    """Put the beliefs that people hold about this race to the test on the torch at hand.

    Exit codes: 0 each answer is the one seen before, 1 one is not, 2 bad input, 3 nothing could be told.
    """
    from harness.commands.output import emit, emit_report
    from harness.control.cases import trials_folder
    from harness.control.claims import put_to_the_test
    from harness.control.environment import describe_environment
    from harness.control.executors import make_executor
    from harness.control.interpreter import find_python
    from harness.core.errors import UserError
    from harness.hazards.claim_readings import CANNOT_TELL
    from harness.hazards.claims import find_claims
    from harness.report.claims import print_claims

    chosen = find_claims(ids or [])
    environment = describe_environment(find_python(python))
    if environment["torch"] is None:
        raise UserError(f"{environment['executable']} has no torch; install it there, or name another with --python")
    folder = trials_folder(out, "claims")

    def note(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    executor = make_executor("local", python=str(environment["executable"]))
    try:
        tested = list(put_to_the_test(chosen, executor, folder, environment, note))
    finally:
        executor.close()
    document = {
        "torch": environment["torch"],
        "claims": [each.to_json() for each in tested],
        "environment": environment,
        "run_dir": str(folder.resolve()),
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"
    (folder / "claims.json").write_text(text, encoding="utf-8")
    if json_output:
        emit(text)
    else:
        emit_report(lambda console: print_claims(console, tested, environment["torch"], witness=witness))
    if any(each.surprising for each in tested):
        raise typer.Exit(1)
    raise typer.Exit(3 if all(each.answer.verdict == CANNOT_TELL for each in tested) else 0)
