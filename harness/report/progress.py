"""How a run goes, on standard error: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.control.interrupts import ENDING
from harness.report import wording
from harness.report.counting import Progress, Started, StartedReference
from harness.report.live import Standings
from harness.report.names import fit

__all__ = ["LiveProgress", "PlainProgress", "Progress", "make_progress"]
PLAIN_EVERY_S = 10.0
WIDTH = 80  # columns of a line in a log; the whole of what is shortened is in results.jsonl
MOST_RUNNING = 8


class PlainProgress(Progress):
    """Lines for a log: every failure, and where things stand now and then; with `every`, each trial."""

    def __init__(self, stream: TextIO, *, every: bool = False) -> None:
        super().__init__()
        self._stream = stream
        self._every = every
        self._told: dict[str, list[str]] = {}  # of trials that wait
        self._said = self.clock()

    def begin(self, total: int, already: int) -> None:
        super().begin(total, already)
        self._say(f"{wording.plural(total, 'trial')} to run" + (f", {already} from before" if already else ""))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self.kept_said():
            self._say(line)

    def started(self, request: Started) -> None:
        super().started(request)
        if self._every:
            self._say(f"start {fit(request.trial_id, WIDTH - 6)}")

    def reference_started(self, request: StartedReference) -> None:
        super().reference_started(request)
        if self._every:
            self._say(f"start reference of {fit(request.scenario.id, WIDTH - 19)}")

    def reference_ended(self, row: Mapping[str, Any]) -> None:
        super().reference_ended(row)
        if row["outcome"] not in ("ok", "interrupted", "skipped"):
            self._say_of(row)

    def waits(self, row: Mapping[str, Any]) -> None:
        super().waits(row)
        self._told[row["trial"]] = self._lines_of(row)
        self._tell(row)

    def ended(self, row: Mapping[str, Any]) -> None:
        super().ended(row)
        if self._told.pop(row["trial"], None) != self._lines_of(row):
            self._tell(row)

    def _tell(self, row: Mapping[str, Any]) -> None:
        if self._every or row["outcome"] not in ("ok", "skipped"):
            self._say_of(row)
        if self.clock() - self._said >= PLAIN_EVERY_S:
            self._said = self.clock()
            self._say(self.counts())
            if waits := self.waits_said():
                self._say(waits)

    def _say_of(self, row: Mapping[str, Any]) -> None:
        for line in self._lines_of(row):
            self._say(line)

    def _lines_of(self, row: Mapping[str, Any]) -> list[str]:
        took = f"{row.get('wall_s') or 0:.1f} s"
        left = WIDTH - len(row["outcome"]) - len(took) - 2
        lines = [f"{row['outcome']} {fit(row['trial'], left)} {took}"]
        if row.get("reason"):
            lines.append(f"  {textwrap.shorten(row['reason'], WIDTH - 2, placeholder=' …')}")
        return lines

    def interrupting(self) -> None:
        super().interrupting()
        self._say(ENDING)

    def note(self, text: str) -> None:
        self._say(f"note: {text}")

    def _say(self, text: str) -> None:
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (BrokenPipeError, RuntimeError):
            # Nobody reads any more, or a signal handler met a write half done: no reason to end a run.
            return


class LiveProgress(Progress):
    """A display that redraws itself at the bottom of a terminal and is gone at the end."""

    def __init__(self, console: Console, title: str, *, every: bool = False) -> None:
        super().__init__()
        self._console = console
        self._title = title
        self._every = every
        self._standings = Standings()
        self._live = Live(
            console=console, get_renderable=self.render, refresh_per_second=4, transient=True, redirect_stdout=False
        )

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        for line in self.kept_said():
            self._console.print(Text(line))

    def reference_ended(self, row: Mapping[str, Any]) -> None:
        super().reference_ended(row)
        if row["outcome"] not in ("ok", "interrupted", "skipped"):
            self._tell(row)

    def waits(self, row: Mapping[str, Any]) -> None:
        super().waits(row)
        self._tell(row)

    def ended(self, row: Mapping[str, Any]) -> None:
        told = self.waiting.get(row["trial"], ("",))[0]
        super().ended(row)
        with self._mutex:
            self._standings.add(row)
        if told != row["outcome"]:  # a line has no more of it
            self._tell(row)

    def _tell(self, row: Mapping[str, Any]) -> None:
        failed = row["outcome"] not in ("ok", "skipped")
        if failed or self._every:
            line = Text(f"{row['outcome']} ", style="red" if failed else "green")
            line.append(fit(str(row["trial"]), max(20, self._console.width - len(line))), style="default")
            self._console.print(line)

    def note(self, text: str) -> None:
        self._console.print(Text(f"note: {text}"))

    def render(self) -> RenderableType:
        """Bar and counts, then what is running, then how the scenarios stand."""
        with self._mutex:
            bar = Table.grid(padding=(0, 1))
            bar.add_row(
                Text(self._title, style="bold"),
                ProgressBar(total=max(1, self.total), completed=self.done, width=20),
                Text(self.counts()),
            )
            lines: list[RenderableType] = [bar]
            if self.stopping:
                lines.append(Text(ENDING, style="yellow"))
            elif self.total and not (self.running or self.running_references or self.done):
                lines.append(Text("starting the interpreter of the trials, which imports torch", style="dim"))
            now = self.clock()
            if waits := self.waits_said():
                lines.append(Text(waits, style="dim"))
            running = [(f"reference of {name}", since) for name, since in self.running_references.values()]
            for name, since in [*running, *self.running.items()][:MOST_RUNNING]:
                shown = fit(name, max(20, self._console.width - 10))
                lines.append(Text(f"  {wording.duration(now - since):>6} {shown}", style="dim", no_wrap=True))
            self._standings.varying = self.varying
            table = self._standings.table(self._console.height - len(lines) - 1)
            return Group(*lines, *([table] if table else []))


def make_progress(console: Console, title: str, *, quiet: bool, verbose: bool) -> Progress:
    """The display that suits: nothing for `quiet`, live on a terminal, lines elsewhere."""
    if quiet:
        return Progress()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, title, every=verbose)
    return PlainProgress(sys.stderr, every=verbose)
