"""Words on standard error from where a failure to say them must change nothing else: closed, broken or full streams."""

from __future__ import annotations

import contextlib
import sys


def tell(text: str) -> None:
    """A line on standard error, if there is one and it takes it."""
    if sys.stderr is not None:  # it is None where the descriptor was closed from the start
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def flush_streams() -> None:
    """Standard output and error, those that there are; what cannot be written is lost, as it would be at an exit."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
