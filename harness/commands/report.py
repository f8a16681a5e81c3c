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
    trial: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Write the page of this trial alone, with its whole timeline.", show_default=False),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Compare with this run, in every output.", show_default=False),
    ] = None,
    markdown: Annotated[
        str | None,
        typer.Option(metavar="FILE|-", help="Write a summary in GitHub's Markdown instead.", show_default=False),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE|-", help="Write a line a trial instead.", show_default=False)
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same as Parquet; needs pyarrow.", show_default=False),
    ] = None,
    badge: Annotated[
        Path | None, typer.Option(metavar="FILE|-", help="Write a badge, an SVG file, instead.", show_default=False)
    ] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Print one line instead, for CI.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write one HTML file of a run that needs nothing else, and say where it is.

    The other outputs are written instead of it; with --out, besides. Exit codes: 0 it is written, 2 bad input.
    """
    import json
    import sys

    from harness.commands.output import emit
    from harness.commands.outputs import Outputs, write_outputs
    from harness.core.errors import UserError
    from harness.report.facts import shown_path
    from harness.report.html import NAME, write_page
    from harness.report.page import build_page
    from harness.report.rundata import read_run
    from harness.report.source import find_run
    from harness.report.text import visible
    from harness.report.watch_page import build_watch_page, is_watch

    if run == Path("-"):
        raise UserError("- is no run folder; --summary and --json take no file and print by themselves")
    folder = find_run(run)
    others = Outputs(markdown, csv, parquet, badge, summary)
    if trial is not None:
        if others.any or baseline is not None:
            raise UserError("--trial writes the page of one trial: it goes with --out and --json only")
        _one_trial(folder, trial, out, json_output)
        return
    if others.any and json_output:
        raise UserError("--json prints the facts of the HTML report; it does not go with the other outputs")
    data = read_run(folder)
    page = build_page(data, None if baseline is None else read_run(baseline))
    if others.any:
        write_outputs(others, data, page)
        if out is None:
            return
    shown = build_watch_page(data) if is_watch(data) else page
    path = write_page(shown, out or folder / NAME)
    if json_output:
        document = {
            "report": str(path.resolve()),
            "run_dir": str(folder.resolve()),
            "bytes": path.stat().st_size,
            "answer": shown.answer.sentence,
            "left_out": list(shown.left_out),
        }
        emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        return
    for note in shown.left_out:
        print(f"note: {visible(note)}", file=sys.stderr)
    emit(f"{shown_path(path)}\n")


def _one_trial(folder: Path, trial: str, out: Path | None, json_output: bool) -> None:
    """The page of one trial, by default in the trial's own folder. Raises UserError: no name of a trial."""
    import json
    import sys

    from harness.commands.output import emit
    from harness.core.errors import UserError
    from harness.report.facts import shown_path
    from harness.report.html import NAME, write_page
    from harness.report.inside import is_inside, is_trial_name
    from harness.report.rundata import read_run
    from harness.report.text import visible
    from harness.report.trialpage import build_trial_page

    if not is_trial_name(trial.rstrip("/").rpartition("/")[2]):
        raise UserError(f'--trial "{visible(trial)}": no name of a trial; they are the folders below {folder / "trials"}')
    page = build_trial_page(read_run(folder), trial)
    own = folder / "trials" / page.trial
    path = write_page(page, out or (own / NAME if own.is_dir() and is_inside(own, folder) else folder / "trial.html"))
    if json_output:
        document = {
            "report": str(path.resolve()),
            "run_dir": str(folder.resolve()),
            "trial": page.trial,
            "bytes": path.stat().st_size,
            "answer": page.sentence,
            "left_out": list(page.left_out),
        }
        emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        return
    for note in page.left_out:
        print(f"note: {visible(note)}", file=sys.stderr)
    emit(f"{shown_path(path)}\n")
