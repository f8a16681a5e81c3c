"""A barrier of three, to which two come: the third thread has ended early."""

from __future__ import annotations

import threading

from running import Threads, run

barrier = threading.Barrier(3)


def step(rank: int) -> None:
    if rank == 2:
        return
    barrier.wait()


def threads() -> Threads:
    return [(f"rank-{rank}", lambda rank=rank: step(rank)) for rank in range(3)]  # type: ignore[misc]


if __name__ == "__main__":
    run(threads())
