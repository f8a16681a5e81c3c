"""Two stages pass items to each other through bounded queues: both queues are full, both stages put."""

from __future__ import annotations

import queue

from running import Threads, run


class Stage:
    def __init__(self, inbox: queue.Queue[int], outbox: queue.Queue[int]) -> None:
        self.inbox = inbox
        self.outbox = outbox

    def work(self) -> None:
        for item in range(100):
            self.outbox.put(item)
            self.outbox.put(item)
            self.take()

    def take(self) -> int:
        return self.inbox.get()


def threads() -> Threads:
    there: queue.Queue[int] = queue.Queue(1)
    back: queue.Queue[int] = queue.Queue(1)
    return [("forth", Stage(back, there).work), ("back", Stage(there, back).work)]


if __name__ == "__main__":
    run(threads())
