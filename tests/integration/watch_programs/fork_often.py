"""Forks ten times, alone or beside a thread. "on and on": for six seconds; "stuck": and then waits for its own lock."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings

warnings.simplefilter("always")  # of what is shown once, each time


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


how = sys.argv[1]
if how == "beside":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
for _ in range(10):
    fork()
until = time.monotonic() + 6
while how == "on and on" and time.monotonic() < until:
    fork()
    time.sleep(0.02)
if how == "stuck":
    lock = threading.Lock()
    with lock:
        lock.acquire()
print("done", flush=True)
