"""A healthy program in which nothing moves for up to 90 % of the hang timeout, each time for another reason."""

from __future__ import annotations

import ctypes
import queue
import subprocess
import threading
import time
from functools import partial

from harness.core.workload import Context, Scenario, Worker

KINDS = ("sleep", "lock", "queue", "gil", "barrier", "condition", "join", "child", "event")


class Pauses:
    """Two workers in step; setting `pause_s`: the length of a pause, `seconds`: of the whole run."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self.ctx = ctx
        self.pause_s = float(ctx.settings["pause_s"])
        self.until = time.monotonic() + float(ctx.settings["seconds"])
        self.lock = threading.Lock()
        self.items: queue.Queue[int] = queue.Queue(1)
        self.meet = threading.Barrier(2)
        self.ready = threading.Condition()
        self.told = -1
        self.event = threading.Event()
        self.seen = -1

    def workers(self) -> list[Worker]:
        return [Worker(f"drafter-{i}", "drafter", "cpu", partial(self.run, i)) for i in range(2)]

    def stop(self) -> None:
        self.meet.abort()

    def run(self, number: int) -> None:
        name = f"drafter-{number}"
        step = 0
        while True:
            self.meet.wait()
            over = time.monotonic() > self.until
            self.meet.wait()
            if over:
                self.ctx.fact(name, "rounds", step)
                return
            kind = KINDS[step % len(KINDS)]
            getattr(self, f"pause_in_{kind}")(number, step)
            self.ctx.step(name, tokens=1, loss=0.0)
            step += 1

    def pause_in_sleep(self, number: int, step: int) -> None:
        time.sleep(self.pause_s)

    def pause_in_lock(self, number: int, step: int) -> None:
        with self.lock:
            if self.first(step):
                time.sleep(self.pause_s)

    def pause_in_queue(self, number: int, step: int) -> None:
        if number:
            self.items.get()
        else:
            time.sleep(self.pause_s)
            self.items.put(step)

    def pause_in_gil(self, number: int, step: int) -> None:
        if number:
            ctypes.PyDLL(None).usleep(int(self.pause_s * 1e6))

    def pause_in_barrier(self, number: int, step: int) -> None:
        if number:
            time.sleep(self.pause_s)
        self.meet.wait()

    def pause_in_condition(self, number: int, step: int) -> None:
        if number:
            time.sleep(self.pause_s)
        with self.ready:
            if number:
                self.told = step
                self.ready.notify_all()
            while self.told < step:
                self.ready.wait()

    def pause_in_join(self, number: int, step: int) -> None:
        thread = threading.Thread(target=time.sleep, args=(self.pause_s,))
        thread.start()
        thread.join()

    def pause_in_child(self, number: int, step: int) -> None:
        subprocess.run(["sleep", str(self.pause_s)], check=True)

    def pause_in_event(self, number: int, step: int) -> None:
        if number:
            time.sleep(self.pause_s)
            self.told = step
            self.event.set()
        else:
            self.event.wait()
            self.event.clear()

    def first(self, step: int) -> bool:
        """Whether this thread is the first to come to the step."""
        before, self.seen = self.seen, step
        return before != step
