"""Three philosophers, each with the fork at his left, which is an attribute of his and another one of his neighbour's."""

from __future__ import annotations

import threading

from running import Threads, run


class Philosopher:
    def __init__(self, left: threading.Lock, right: threading.Lock, seated: threading.Barrier) -> None:
        self.left = left
        self.right = right
        self.seated = seated

    def dine(self) -> None:
        with self.left:
            self.seated.wait(10)
            self.reach()

    def reach(self) -> None:
        self.right.acquire()


def threads() -> Threads:
    forks = [threading.Lock() for _ in range(3)]
    seated = threading.Barrier(3)
    table = [Philosopher(forks[i], forks[(i + 1) % 3], seated) for i in range(3)]
    return [(f"philosopher-{i}", each.dine) for i, each in enumerate(table)]


if __name__ == "__main__":
    run(threads())
