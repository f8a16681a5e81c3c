"""Forks by hand, by multiprocessing (fork and spawn) and by subprocess; says what its children saw."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys


def child(queue: multiprocessing.SimpleQueue[str]) -> None:
    queue.put(f"{os.environ.get('HARNESS_WATCH') is not None}")


def main() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    print("fork", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    for how in ("fork", "spawn"):
        context = multiprocessing.get_context(how)
        queue = context.SimpleQueue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        process.join(60)
        print(how, process.exitcode, queue.get(), flush=True)
    done = subprocess.run([sys.executable, "-c", "import sys; sys.exit(3)"], check=False)
    print("subprocess", done.returncode, flush=True)


if __name__ == "__main__":
    main()
