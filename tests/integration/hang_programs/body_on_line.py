"""Two threads take two locks in opposite order; one waits at a `with` whose body is on the same line."""

from __future__ import annotations

import threading

from running import Threads, run

table, both = threading.Lock(), threading.Barrier(2)


class Stats:
    def __init__(self) -> None:
        self.lock, self.count = threading.Lock(), 0

    def add(self) -> None:
        with self.lock:
            both.wait(10)
            with table:
                self.count += 1


stats = Stats()


def read() -> None:
    with table:
        both.wait(10)
        with stats.lock: stats.count += 1  # noqa: E701


def threads() -> Threads:
    return [("reader", read), ("adder", stats.add)]


if __name__ == "__main__":
    run(threads())
