"""`harness report`: one HTML file of a run, to look at and to send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A run folder.  [default: reports/latest]", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write.  [default: RUN/report.html]", show_default=False),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write one HTML file of a run that needs nothing else, and say where it is.

    Exit codes: 0 it is written, 2 bad input.
    """
    import json
    import sys

    from harness.commands.output import emit
    from harness.report.facts import shown_path
    from harness.report.html import NAME, write_page
    from harness.report.page import build_page
    from harness.report.rundata import read_run
    from harness.report.source import find_run
    from harness.report.text import visible

    folder = find_run(run)
    page = build_page(read_run(folder))
    path = write_page(page, out or folder / NAME)
    if json_output:
        document = {
            "report": str(path.resolve()),
            "run_dir": str(folder.resolve()),
            "bytes": path.stat().st_size,
            "answer": page.answer.sentence,
            "left_out": list(page.left_out),
        }
        emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        return
    for note in page.left_out:
        print(f"note: {visible(note)}", file=sys.stderr)
    emit(f"{shown_path(path)}\n")
