"""What `harness report` writes beside the page: Markdown, tables, a badge, one line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.commands.output import emit
from harness.core.errors import UserError
from harness.report.facts import shown_path
from harness.report.files import write_whole
from harness.report.page import Page
from harness.report.rundata import RunData

STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True)
class Outputs:
    """What was asked for: files; all but `parquet` may be "-", standard output."""

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

    Raises UserError: a file that cannot be written, Parquet without pyarrow or to a terminal, two at once to "-".
    """
    from harness.report.text import visible

    _check_streams(wanted)
    for note in page.left_out:
        print(f"note: {visible(note)}", file=sys.stderr)
    if wanted.parquet is not None:  # first, for it is the one that may not be possible
        from harness.commands.export import to_parquet

        emit(f"{shown_path(write_whole(to_parquet(data.source.rows()), wanted.parquet, '--parquet'))}\n")
    if wanted.csv is not None:
        from harness.commands.export import to_csv

        _put(to_csv(data.source.rows()), wanted.csv, "--csv")
    if wanted.badge is not None:
        from harness.report.badge import badge

        _put(badge(page), wanted.badge, "--badge")
    if wanted.markdown is not None:
        from harness.report.markdown import run_markdown

        _put(run_markdown(data, page), Path(wanted.markdown), "--markdown")
    if wanted.summary:
        from harness.report.badge import summary_line

        emit(summary_line(data, page) + "\n")


def _check_streams(wanted: Outputs) -> None:
    if wanted.parquet == STANDARD_OUTPUT:
        raise UserError("--parquet -: Parquet is binary and needs a file; name one, or use --csv - for text")
    asked = {"--markdown": wanted.markdown and Path(wanted.markdown), "--csv": wanted.csv, "--badge": wanted.badge}
    streams = [option for option, path in asked.items() if path == STANDARD_OUTPUT]
    if len(streams) > 1:
        raise UserError(f"{' and '.join(streams)} cannot all be written to standard output; name a file for all but one")


def _put(text: str, path: Path, option: str) -> None:
    """Write it, and say where; "-" is standard output itself."""
    emit(text if path == STANDARD_OUTPUT else f"{shown_path(write_whole(text, path, option))}\n")
