"""A native call that keeps the interpreter lock: no other Python thread runs, not even one that would look."""

from __future__ import annotations

import ctypes
import threading
import time

from running import Threads, run

other = threading.Event()


def call() -> None:
    time.sleep(1.0)  # others, and who looks at them, have begun
    ctypes.PyDLL(None).sleep(3600)


def wait() -> None:
    other.wait()


def threads() -> Threads:
    return [("caller", call), ("waiter", wait)]


if __name__ == "__main__":
    run(threads())
