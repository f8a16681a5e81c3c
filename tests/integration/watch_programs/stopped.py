"""Says `ready`, waits for a line while a thread works, goes on for a while, and ends well: to be stopped meanwhile."""

from __future__ import annotations

import sys
import threading
import time

done = threading.Event()


def work() -> None:
    while not done.is_set():
        sum(range(1000))


worker = threading.Thread(target=work, name="worker")
worker.start()
print("ready", flush=True)
sys.stdin.readline()
time.sleep(1.5)
done.set()
worker.join()
print("well", flush=True)
