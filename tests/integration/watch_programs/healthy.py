"""Works for SECONDS, with pauses of 90 % of a hang timeout of TIMEOUT: sleeps, waits, an idle pool, a lock held long."""

from __future__ import annotations

import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

seconds, pause = float(sys.argv[1]), 0.9 * float(sys.argv[2])
end = time.monotonic() + seconds
lock = threading.Lock()
jobs: queue.Queue[int] = queue.Queue()
idle: queue.Queue[int] = queue.Queue()
barrier = threading.Barrier(2)


def produce() -> None:
    while time.monotonic() < end:
        time.sleep(pause)
        jobs.put(1)
        barrier.wait()
    jobs.put(0)


def consume() -> None:
    while jobs.get():
        barrier.wait()
        with lock:
            pass


def hold() -> None:
    while time.monotonic() < end:
        with lock:
            time.sleep(pause)
        time.sleep(0.01)


pool = ThreadPoolExecutor(2)
pool.submit(int).result()
threading.Thread(target=idle.get, name="idle for good", daemon=True).start()
threads = [threading.Thread(target=work, name=work.__name__) for work in (produce, consume, hold)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("healthy", flush=True)
