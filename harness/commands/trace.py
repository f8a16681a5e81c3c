"""`harness trace`: a trial's events as a file for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def trace(
    trial: Annotated[
        Path, typer.Argument(metavar="TRIAL_DIR", help="A trial's folder: RUN/trials/<id>.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write.  [default: TRIAL_DIR/trace.json]", show_default=False),
    ] = None,
) -> None:
    """Write a trial's events as a trace: open it at ui.perfetto.dev or in chrome://tracing.

    Exit codes: 0 it is written, 2 bad input.
    """
    import json
    import sys

    from harness.commands.output import emit
    from harness.report.facts import shown_path
    from harness.report.files import write_whole
    from harness.report.trace import trace_document
    from harness.report.trial_events import RESULT, check_trial_folder, read_document, read_trial_events

    folder = check_trial_folder(trial)
    events, notes = read_trial_events(folder)
    result = read_document(folder / RESULT)
    name = folder.resolve().name
    facts = {"trial": name} | {key: result[key] for key in ("torch", "python") if key in result}
    document = trace_document(events, name, facts)
    path = out or folder / "trace.json"
    write_whole(json.dumps(document, separators=(",", ":"), allow_nan=False), path)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    emit(f"{shown_path(path)}\n")
