"""A thread reads from a pipe that nobody writes to, with a lock that another wants. The read lets the interpreter go."""

from __future__ import annotations

import os
import threading

from running import Threads, run

lock = threading.Lock()
reading = threading.Event()
ends = os.pipe()


def fetch() -> None:
    with lock:
        reading.set()
        os.read(ends[0], 1)


def use() -> None:
    reading.wait(10)
    with lock:
        raise AssertionError("there was something to read")


def threads() -> Threads:
    return [("fetcher", fetch), ("user", use)]


if __name__ == "__main__":
    run(threads())
