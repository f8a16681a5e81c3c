"""Start a program's threads and wait for them, as a main thread does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

Threads = Sequence[tuple[str, Callable[[], None]]]


def run(threads: Threads) -> None:
    """Never returns, if the program does what it is for; a stray end is seen by the line that is printed."""
    started = [threading.Thread(target=function, name=name) for name, function in threads]
    for thread in started:
        thread.start()
    print("started", flush=True)
    for thread in started:
        thread.join()
    print("ended", flush=True)
