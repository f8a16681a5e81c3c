"""Work in a pool of one thread waits for other work of the same pool."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from running import Threads, run

pool = ThreadPoolExecutor(1, thread_name_prefix="pool")


def inner() -> int:
    return 1


def outer() -> int:
    return pool.submit(inner).result()


def ask() -> None:
    pool.submit(outer).result()


def threads() -> Threads:
    return [("asker", ask)]


if __name__ == "__main__":
    run(threads())
