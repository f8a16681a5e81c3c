"""What `harness report` writes beside the page: Markdown, tables, a badge, one line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.commands.output import emit
from harness.report.facts import shown_path
from harness.report.files import write_whole
from harness.report.page import Page
from harness.report.rundata import RunData


@dataclass(frozen=True)
class Outputs:
    """What was asked for. `markdown` is a file, or "-" for standard output."""

    markdown: str | None
    csv: Path | None
    parquet: Path | None
    badge: Path | None
    summary: bool

    @property
    def any(self) -> bool:
        """Whether anything but the page was."""
        return self.summary or any(one is not None for one in (self.markdown, self.csv, self.parquet, self.badge))


def write_outputs(wanted: Outputs, data: RunData, page: Page) -> None:
    """Write them, and name on standard output each file, or what was to be printed.

    Raises UserError: a file that cannot be written, or Parquet without pyarrow.
    """
    from harness.report.text import visible

    for note in page.left_out:
        print(f"note: {visible(note)}", file=sys.stderr)
    if wanted.parquet is not None:  # first, for it is the one that may not be possible
        from harness.commands.export import to_parquet

        emit(f"{shown_path(write_whole(to_parquet(data.source.rows()), wanted.parquet, '--parquet'))}\n")
    if wanted.csv is not None:
        from harness.commands.export import to_csv

        emit(f"{shown_path(write_whole(to_csv(data.source.rows()), wanted.csv, '--csv'))}\n")
    if wanted.badge is not None:
        from harness.report.badge import badge

        emit(f"{shown_path(write_whole(badge(page), wanted.badge, '--badge'))}\n")
    if wanted.markdown is not None:
        from harness.report.markdown import run_markdown

        text = run_markdown(data, page)
        if wanted.markdown == "-":
            emit(text)
        else:
            emit(f"{shown_path(write_whole(text, Path(wanted.markdown), '--markdown'))}\n")
    if wanted.summary:
        from harness.report.badge import summary_line

        emit(summary_line(data, page) + "\n")
