"""`harness upstream`: the text of an issue for PyTorch, from a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def upstream(
    trial: Annotated[
        Path, typer.Argument(metavar="TRIAL_DIR", help="A trial's folder: RUN/trials/<id>.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write.  [default: standard output]", show_default=False),
    ] = None,
    hazard: Annotated[
        str | None,
        typer.Option(
            metavar="HAZARD",
            help="Of the catalogue, where its stacks do not tell; a note says if they tell of another.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a bug report of a trial that failed: both stacks, the witness, versions, and a minimal script.

    It names no home folder and no variable but those that change how torch behaves; read it before you send it.
    Exit codes: 0 it is written, 2 bad input.
    """
    import sys

    from harness.commands.output import emit
    from harness.report.facts import shown_path
    from harness.report.files import write_whole
    from harness.report.text import visible
    from harness.report.trial_source import read_trial
    from harness.report.upstream import against, upstream_text

    found = read_trial(trial)
    text = upstream_text(found, hazard or "")
    doubt = against(found, hazard) if hazard else ""
    for note in [*found.notes, *([doubt] if doubt else [])]:
        print(f"note: {visible(note)}", file=sys.stderr)
    if out is None:
        emit(text)
    else:
        emit(f"{shown_path(write_whole(text, out))}\n")
