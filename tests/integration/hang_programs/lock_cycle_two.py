"""Two threads take two locks in opposite order."""

from __future__ import annotations

import threading

from running import Threads, run


def threads() -> Threads:
    a, b = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def take(first: threading.Lock, second: threading.Lock) -> None:
        with first:
            both.wait(10)
            with second:
                raise AssertionError("both locks")

    return [("left", lambda: take(a, b)), ("right", lambda: take(b, a))]


if __name__ == "__main__":
    run(threads())
