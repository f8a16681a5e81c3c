"""Three threads fork at a time, after a child by forkserver; files that the program knows nothing of are closed."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time

longest = 0.0
forks = 0


def child() -> None:
    os._exit(0)


def fork() -> None:
    global forks, longest
    for _ in range(5):
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            thread = threading.Thread(target=time.sleep, args=(0.01,))
            thread.start()
            thread.join()
            os._exit(0)
        longest = max(longest, time.monotonic() - began)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        forks += 1


def main() -> None:
    process = multiprocessing.get_context("forkserver").Process(target=child)
    process.start()
    process.join(60)
    os.closerange(100, 1000)
    threads = [threading.Thread(target=fork) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(process.exitcode, forks, "held up" if longest > 0.9 else "at once", flush=True)


if __name__ == "__main__":
    main()
