"""Children of multiprocessing, started as told, that end by errors, by a crash, and well; says their exit codes."""

from __future__ import annotations

import ctypes
import multiprocessing
import sys

FX = "Detected that you are using FX to symbolically trace a dynamo-optimized function. This is not supported at the moment."


def refused() -> None:
    raise RuntimeError(FX)


def fails() -> None:
    raise ValueError("of the child")


def crashes() -> None:
    ctypes.string_at(0)


def leaves() -> None:
    sys.exit(3)


def main() -> None:
    context = multiprocessing.get_context(sys.argv[1])
    for work in (refused, fails, crashes, leaves, len, "well".upper):
        child = context.Process(target=work, name=f"{work.__name__}-0")
        child.start()
        child.join(60)
        print(work.__name__, child.exitcode, flush=True)


if __name__ == "__main__":
    main()
