"""A notify comes before the wait for it, which tests nothing."""

from __future__ import annotations

import threading

from running import Threads, run

ready = threading.Condition()
told = threading.Event()


def producer() -> None:
    with ready:
        ready.notify_all()
    told.set()


def consumer() -> None:
    told.wait(10)
    with ready:
        ready.wait()


def threads() -> Threads:
    return [("producer", producer), ("consumer", consumer)]


if __name__ == "__main__":
    run(threads())
