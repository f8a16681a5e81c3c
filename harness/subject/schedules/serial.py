"""One thread at a time between two sync points: what `pct` and `replay` have in common.

As in Shuttle and CHESS, a decision is made only when nobody runs: every thread is at a point, or waits for one that is, or
has ended. Unlike there, the points are hooks in a real program with real locks: a thread that waits says so, and is let be
until whom it waits for has moved; a thread that waits without a word would stop everything, so after a silence the
decisions go on without it (`lost`, told in the result).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.points import CONTENTION
from harness.core.recording import START

from ..identity import Thread
from .base import Setting, Wait
from .crew import LOOK_S, Crew, Seat
from .recorder import Recorder

SILENT_S = 10.0


class Serial:
    """`choose` decides; `passed` is told. Both run with the crew's lock held."""

    def __init__(self, setting: Setting) -> None:
        self.crew = Crew(setting.threads)
        self.recorder = Recorder(setting)
        self.over = False  # nobody is held any more
        self.lost = 0
        self._silent_s = float(setting.extra.get("silent_s", SILENT_S))
        self._gone: set[int] = set()  # idents of threads that fell silent
        self._chosen: Seat | None = None  # who is to go on, until it has

    def choose(self, waiting: Sequence[Seat]) -> Seat | None:
        """Who goes on, of those at a point, when nobody runs. None: the schedule has given up."""
        raise NotImplementedError

    def passed(self, seat: Seat, point: str, info: str) -> None:
        """It went."""

    def result(self) -> dict[str, Any]:
        """The schedule's own part of the result."""
        return {}

    def begin(self, workers: Mapping[str, str]) -> None:
        """No decision before all of them have started."""
        with self.crew.changed:
            self.crew.announce(workers)
            self.recorder.workers = dict(workers)

    def thread_started(self, thread: Thread) -> None:
        """Held like at a point, so that it matters not which thread the system starts first."""
        self._stop_at(START, thread, "")

    def thread_ended(self, thread: Thread) -> None:
        """One less to wait for."""
        with self.crew.changed:
            self.crew.end(thread)
            self.crew.changed.notify_all()

    def reach(self, point: str, thread: Thread, info: str) -> None:
        """Until it is chosen. Where threads only meet a taken lock, nothing is decided: they wait there anyway."""
        if point not in CONTENTION:
            self._stop_at(point, thread, info)

    def trying(self, lock: str, thread: Thread) -> None:
        """Only replays order this."""

    def blocked(self, thread: Thread, wait: Wait) -> None:
        """It does not run, as long as whom it waits for does not."""
        if self.over:
            return
        with self.crew.changed:
            self.crew.seat(thread).wait = wait
            self.crew.changed.notify_all()

    def unblocked(self, thread: Thread) -> None:
        """It runs."""
        if self.over:
            return
        with self.crew.changed:
            self.crew.seat(thread).wait = thread.waits

    def finish(self) -> dict[str, Any]:
        """Lets go of everybody and writes the recording."""
        with self.crew.changed:
            self.let_go()
            found = {**self.result(), "points": len(self.recorder.events), "lost": self.lost}
        return {**found, "recording": self.recorder.write()}

    def let_go(self) -> None:
        """Nobody is held from now on; with the lock held."""
        self.over = True
        self.crew.changed.notify_all()

    def _stop_at(self, point: str, thread: Thread, info: str) -> None:
        if not self._mine(thread):
            return
        if self.over:
            self.recorder.add(thread, point, info)
            return
        with self.crew.changed:
            self._gone.discard(thread.ident)
            seat = self.crew.arrive(thread, point, info)
            self.wait_for_turn(seat)
            self.recorder.add(thread, point, info)
            if not self.over:
                self.passed(seat, point, info)

    def wait_for_turn(self, seat: Seat) -> None:
        """Until `seat` is chosen, or nobody is held any more; with the lock held. It runs from then on."""
        self.crew.changed.notify_all()
        while not self.over and self._next() is not seat:
            self.crew.changed.wait(LOOK_S)
            self._mind_the_silence()
        seat.at = None
        seat.wait = seat.thread.waits  # a wait of the workload's own that the point lies in is still to come
        if self._chosen is seat:
            self._chosen = None

    def _mine(self, thread: Thread) -> bool:
        """Workers and who works for them; the main thread and the workload's own are left alone."""
        return thread.worker in self.crew.workers

    def _next(self) -> Seat | None:
        """The one that may go. Chosen once, when it is time to say: all have started, and nobody runs."""
        if self._chosen is None and not self.over and not self._running():
            waiting = [seat for seat in self.crew.seats.values() if seat.at is not None and not seat.ended]
            self._chosen = self.choose(waiting) if waiting else None
            if waiting and self._chosen is None:
                self.let_go()
            self.crew.changed.notify_all()
        return self._chosen

    def _running(self) -> bool:
        seated = {seat.thread.worker for seat in self.crew.seats.values()}
        if any(name not in seated for name in self.crew.live_workers()):
            return True
        return bool(self.crew.able(lambda seat: False) - self._gone)

    def _mind_the_silence(self) -> None:
        if time.monotonic() - self.crew.last > self._silent_s and self._running():
            silent = self.crew.able(lambda seat: False) - self._gone
            self._gone |= silent
            self.lost += len(silent)
            self.crew.changed.notify_all()
