"""A function takes a plain lock and calls another that takes it again."""

from __future__ import annotations

import threading

from running import Threads, run


class Account:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.total = 0

    def add(self) -> None:
        with self.lock:
            self.log()

    def log(self) -> None:
        with self.lock:
            print(self.total)


def threads() -> Threads:
    return [("teller", Account().add)]


if __name__ == "__main__":
    run(threads())
