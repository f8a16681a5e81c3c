"""Standard output that a reader may stop reading."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from harness.core.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console


def emit_report(show: Callable[[Console], None]) -> None:
    """Let `show` print to a console of standard output's kind, and write what it printed at once.

    At once, because rich ends the process when a reader has gone; blanks at the ends of lines are padding.
    """
    from rich.console import Console

    console = Console(file=_stdout())
    with console.capture() as captured:
        show(console)
    emit("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def emit(text: str) -> None:
    """Write to standard output.

    A reader that has gone (`| head`) is no error, and no reason for another exit code. Raises UserError: it was closed
    (`>&-`) before the start.
    """
    out = _stdout()
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        # What is left in the buffer would raise once more when the interpreter closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def _stdout() -> TextIO:
    out: TextIO | None = sys.stdout  # None where it was closed
    if out is None:
        raise UserError("standard output is closed; leave it open, or send it to a file or /dev/null")
    return out
