"""`harness watch`: probes and a watchdog in any program, without a change to it."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OnHang(StrEnum):
    """What a hang leads to."""

    report = "report"
    kill = "kill"


def watch(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND", help="As at a prompt: python train.py …, torchrun …, pytest …", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The run folder.  [default: reports/watch-<program>-<UTC time>]", show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            help="Watch the processes that it starts, too.  [default: only a launcher's, as torchrun's]",
            show_default=False,
        ),
    ] = None,
    hang_timeout: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="Seconds without a sign of life that make a hang.")
    ] = 30.0,
    on_hang: Annotated[OnHang, typer.Option(help="Say so and let it be, or end it.")] = OnHang.report,
    live: Annotated[bool, typer.Option("--live", help="Show threads, waits and counts while it runs.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing at the end if nothing was found.")
    ] = False,
) -> None:
    """Run a program with probes and a watchdog inside, and report what its threads did to each other.

    Exit codes: the program's own; 2 when it cannot be started; 137 after --on-hang kill.
    """
    from harness.control.watch import WatchOptions
    from harness.control.watch import watch as run
    from harness.control.watch_live import make_display
    from harness.control.watch_program import end_like
    from harness.core.errors import UserError
    from harness.core.telling import tell

    terminal = sys.stderr is not None and sys.stderr.isatty()
    options = WatchOptions(
        command or [], out, follow, hang_timeout, on_hang is OnHang.kill, live and terminal
    )
    display = make_display(options.live)

    def say(text: str) -> None:
        display.pause()
        tell(f"harness watch: {text}")

    result = run(options, display, say)
    from harness.report.html import write_report  # not before: the program does not wait for it
    from harness.report.watched import summary

    try:
        written = str(write_report(result.run_dir))
    except (UserError, OSError) as error:  # the program has run: its exit code counts, not our page
        written = f"no report: {error}"
    text = summary(result.rows, result.notes, written, quiet=quiet, run=str(result.run_dir))
    if text:
        tell(text)
    end_like(result.status, killed_by_us=result.killed)
