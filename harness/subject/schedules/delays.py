"""`delays:SEED[:SETTING]`: seeded pauses at sync points, barriers at the start, and faster switching between threads.

After noise injection (Edelstein, Farchi, Goldin, Nir, Ratsaby, Ur: *Framework for testing multi-threaded Java programs*,
2003) and RaceFuzzer-like portfolios. Departures: whether and how long a thread pauses is drawn from (seed, seat, how many
points that seat has passed), not from one generator, so that it does not depend on who came first; and there is no claim
of odds: the settings are a portfolio because each hides what another shows (`harness.core.schedulespec.PORTFOLIO`).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.core.recording import START
from harness.core.schedulespec import PORTFOLIO, ScheduleSpec

from ..identity import Thread
from .base import Schedule, Setting, Wait
from .crew import LOOK_S, Crew, seat_name
from .recorder import Recorder

Draw = Callable[[random.Random], float]

_WINDOWS = ("fx.window.open", "globals.saved", "compile.enter", "backward_lowering.enter", "flex_eager.enter", "mark.")
_FIRST_CALL = "compiled_call.enter"
SWITCH_S = 1e-5


def _pause(point: str, setting: str, draw: random.Random) -> float:
    """Seconds to pause at `point`."""
    if setting == "dense":
        return draw.random() * 0.002 if draw.random() < 0.5 else 0.0
    if setting == "rare":
        return draw.random() * 0.1 if draw.random() < 0.02 else 0.0
    if setting == "windows":
        return draw.random() * 0.02 if point.startswith(_WINDOWS) else 0.0
    if setting == "edges":
        return draw.random() * 0.01 if point.startswith("region.") else 0.0
    if setting == "switch":
        return draw.random() * 0.0002 if draw.random() < 0.2 else 0.0
    return 0.0


class Delays:
    """Pauses, and in the setting `start` two meetings; records the order that came of it."""

    def __init__(self, spec: ScheduleSpec, setting: Setting) -> None:
        self._seed = spec.seed
        self._setting = spec.setting or list(PORTFOLIO)[spec.seed % len(PORTFOLIO)]
        self._recorder = Recorder(setting)
        self._crew = Crew(setting.threads)
        self._counts: dict[str, int] = {}
        self._met: set[str] = set()
        self._paused_ns = 0
        self._over = False
        self._before = sys.getswitchinterval()

    def begin(self, workers: Mapping[str, str]) -> None:
        """Faster switching, if that is the setting."""
        with self._crew.changed:
            self._crew.announce(workers)
        self._recorder.workers = dict(workers)
        if self._setting == "switch":
            sys.setswitchinterval(SWITCH_S)

    def thread_started(self, thread: Thread) -> None:
        """All begin at once."""
        self._meet(START, thread)
        self._recorder.add(thread, START, "")

    def thread_ended(self, thread: Thread) -> None:
        """Nobody waits for it."""
        with self._crew.changed:
            self._crew.end(thread)
            self._crew.changed.notify_all()

    def reach(self, point: str, thread: Thread, info: str) -> None:
        """Pause, then pass."""
        seat = seat_name(thread)
        count = self._counts[seat] = self._counts.get(seat, 0) + 1
        if not self._over:
            if point == _FIRST_CALL and seat not in self._met:
                self._met.add(seat)
                self._meet(point, thread)
            seconds = _pause(point, self._setting, random.Random(f"{self._seed}/{seat}/{count}"))
            if seconds:
                began = time.perf_counter_ns()
                time.sleep(seconds)
                self._paused_ns += time.perf_counter_ns() - began
        self._recorder.add(thread, point, info)

    def trying(self, lock: str, thread: Thread) -> None:
        """Not a point."""

    def blocked(self, thread: Thread, wait: Wait) -> None:
        """A meeting does not wait for it."""
        if self._setting == "start" and not self._over:
            with self._crew.changed:
                self._crew.seat(thread).wait = wait
                self._crew.changed.notify_all()

    def unblocked(self, thread: Thread) -> None:
        """It runs."""
        if self._setting == "start" and not self._over:
            with self._crew.changed:
                self._crew.seat(thread).wait = thread.waits

    def finish(self) -> dict[str, Any]:
        """What was done to the trial; switching as before."""
        sys.setswitchinterval(self._before)
        with self._crew.changed:
            self._over = True
            self._crew.changed.notify_all()
        return {
            "kind": "delays",
            "seed": self._seed,
            "setting": self._setting,
            "points": len(self._recorder.events),
            "paused_s": round(self._paused_ns / 1e9, 4),
            "recording": self._recorder.write(),
        }

    def _meet(self, point: str, thread: Thread) -> None:
        """Until nobody else can come: all others are here, wait for somebody who is, or have ended."""
        if self._setting != "start" or thread.worker not in self._crew.workers:
            return
        with self._crew.changed:
            seat = self._crew.arrive(thread, point, "")
            self._crew.changed.notify_all()
            # Once one of them has left, the meeting is over for all who were there.
            while not self._over and seat.at is not None and not self._all_here():
                self._crew.changed.wait(LOOK_S)
            for other in self._crew.seats.values():
                other.at = None
            self._crew.changed.notify_all()

    def _all_here(self) -> bool:
        seated = {seat.thread.worker for seat in self._crew.seats.values()}
        return all(name in seated for name in self._crew.live_workers()) and not self._crew.able(lambda seat: False)


def make(spec: ScheduleSpec, setting: Setting) -> Schedule | None:
    """From the axis alone."""
    return Delays(spec, setting)
