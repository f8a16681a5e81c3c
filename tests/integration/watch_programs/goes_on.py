"""Waits that end by themselves, each longer than a hang timeout: by a clock, a signal, a child, a loop, or work that is done.

    goes_on.py ticks|buffer|timer|loop|child|signal SECONDS
"""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
import time

how, seconds = sys.argv[1], float(sys.argv[2])
mutex = threading.Lock()
filled = threading.Condition(mutex)
items: list[int] = []


def ticks() -> None:
    stop = threading.Event()
    end = time.monotonic() + seconds
    while not stop.wait(0.9):
        if time.monotonic() > end:
            stop.set()


def consume() -> None:
    with mutex:
        while not items:
            filled.wait()


def produce() -> None:
    with mutex:
        items.append(1)
        filled.notify()


def compute() -> None:
    end = time.monotonic() + seconds
    with mutex:
        while time.monotonic() < end:
            sum(range(10_000))


def buffer() -> None:
    threads = [threading.Thread(target=work, name=work.__name__) for work in (consume, compute, produce)]
    for thread in threads:
        thread.start()
        time.sleep(0.2)
    for thread in threads:
        thread.join()


def timer() -> None:
    over = threading.Event()
    threading.Timer(seconds, over.set).start()
    over.wait()


def loop() -> None:
    runs = asyncio.new_event_loop()
    threading.Thread(target=runs.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(seconds), runs).result()


def child() -> None:
    lines: queue.Queue[str] = queue.Queue()
    process = subprocess.Popen(["sh", "-c", f"sleep {seconds}; echo done"], stdout=subprocess.PIPE, text=True)

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)

    threading.Thread(target=read).start()
    lines.get()
    process.wait()


def by_signal() -> None:
    over = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: over.set())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    over.wait()


{"ticks": ticks, "buffer": buffer, "timer": timer, "loop": loop, "child": child, "signal": by_signal}[how]()
print("went on", flush=True)
