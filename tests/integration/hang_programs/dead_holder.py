"""A thread ends by an exception between acquire and release; another waits for the lock."""

from __future__ import annotations

import threading

from running import Threads, run

table = threading.Lock()
taken = threading.Event()


def writer() -> None:
    table.acquire()
    taken.set()
    if taken.is_set():
        return  # where an exception would leave it
    table.release()


def reader() -> None:
    taken.wait(10)
    with table:
        raise AssertionError("the lock was free")


def threads() -> Threads:
    return [("writer", writer), ("reader", reader)]


if __name__ == "__main__":
    run(threads())
