"""`harness compare`: is one run better than another, scenario by scenario?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="The run folder to compare with.", show_default=False)],
    after: Annotated[Path, typer.Argument(metavar="B", help="The run folder in question.", show_default=False)],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write B's report with the comparison.", show_default=False),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")] = False,
) -> None:
    """Say of every scenario whether B is better or worse than A, or whether no change can be told.

    Exit codes: 0 nothing is worse, 1 something is, 2 bad input, 3 nothing can be compared.
    """
    import json
    import sys

    from harness.commands.output import emit, emit_report
    from harness.report.comparison import compare as compare_runs
    from harness.report.comparison_json import to_json
    from harness.report.facts import shown_path
    from harness.report.html import write_page
    from harness.report.page import build_page
    from harness.report.rundata import read_run
    from harness.report.text import visible
    from harness.report.versus import print_comparison

    old, new = read_run(before), read_run(after)
    found = compare_runs(old, new)
    for data in (old, new):
        for note in data.source.notes:
            print(f"note: {visible(data.run_dir)}: {visible(note)}", file=sys.stderr)
    if html is not None:
        path = write_page(build_page(new, old), html)
        print(f"note: report: {shown_path(path)}", file=sys.stderr)
    if json_output:
        emit(json.dumps(to_json(found, old, new), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        emit_report(lambda console: print_comparison(console, found, old, new))
    raise typer.Exit(found.exit_code)
