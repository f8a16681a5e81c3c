"""As `dead_holder`, with a re-entrant lock, which knows its owner."""

from __future__ import annotations

import threading

from running import Threads, run


class Store:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.reading = threading.Event()
        self.taken = threading.Event()

    def write(self) -> None:
        self.reading.wait(10)  # or the reader would be given the ident of a thread that has ended
        self.lock.acquire()
        self.taken.set()

    def read(self) -> None:
        self.reading.set()
        self.taken.wait(10)
        with self.lock:
            raise AssertionError("the lock was free")


def threads() -> Threads:
    store = Store()
    return [("writer", store.write), ("reader", store.read)]


if __name__ == "__main__":
    run(threads())
