"""Replicas meet at a barrier inside the step that a lock holds exclusive."""

from __future__ import annotations

import threading

from running import Threads, run

step_lock = threading.RLock()
replicas = threading.Barrier(2)


def train() -> None:
    for _ in range(3):
        with step_lock:
            replicas.wait()


def threads() -> Threads:
    return [("replica-0", train), ("replica-1", train)]


if __name__ == "__main__":
    run(threads())
