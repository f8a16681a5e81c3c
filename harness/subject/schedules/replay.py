"""`replay`: the same order of sync points again, or the first event that differs.

Like Shuttle's replay scheduler, on the points of `serial`. Departure: locks are real, and who takes one is decided between
two points, so a thread that is about to try a lock is held there until its `acquired` is next (`trying`). A thread that
comes to another point than the recording says, or an order that cannot go on, is a divergence: it is kept, and everybody
is let go, since from there on there is no order to follow.

Also runs orders that were never recorded: `harness minimise` splices two recordings and asks what comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.core.points import CONTENTION
from harness.core.recording import Passed, Recording, RecordingError
from harness.core.schedulespec import ScheduleSpec

from ..identity import Thread
from .base import Schedule, Setting
from .crew import LOOK_S, Seat, seat_name
from .serial import Serial

_TRYING = "(about to take a lock)"
_ACQUIRED = {"strategy": "strategy_lock.acquired", "compile": "compile_lock.acquired"}


class Replay(Serial):
    """`_next_index`: the event that is to come."""

    def __init__(self, recording: Recording, setting: Setting) -> None:
        super().__init__(setting)
        self._events = [event for event in recording.events if event.point not in CONTENTION]
        self._own: dict[str, list[int]] = {}  # seat → indices of its events, the next one last
        for index in reversed(range(len(self._events))):
            self._own.setdefault(self._events[index].seat, []).append(index)
        self._next_index = 0
        self._divergence: dict[str, Any] | None = None

    def reach(self, point: str, thread: Thread, info: str) -> None:
        """As recorded, or a divergence."""
        if point in CONTENTION:
            return
        if not self.over and self._mine(thread):
            came = Passed(seat_name(thread), point, info)
            with self.crew.changed:
                expected = self._expected(came.seat)
                if not self.over and came != expected:
                    self._diverge(came, expected, "another point came")
        super().reach(point, thread, info)

    def trying(self, lock: str, thread: Thread) -> None:
        """Not before its turn: else it would have the lock that another one had first."""
        if self.over or not self._mine(thread):
            return
        with self.crew.changed:
            expected = self._expected(seat_name(thread))
            if expected is None or expected.point != _ACQUIRED[lock]:
                return
            seat = self.crew.arrive(thread, _TRYING, lock)
            self.crew.changed.notify_all()
            while not self.over and not (self._is_next(thread) and not self._running()):
                self._next()  # for its verdict: the order may have come to an end
                self.crew.changed.wait(LOOK_S)
                self._mind_the_silence()
            seat.at = None

    def choose(self, waiting: Sequence[Seat]) -> Seat | None:
        """The seat of the next event, if it is there; a seat at a lock goes by itself (`trying`)."""
        if self._next_index >= len(self._events):
            return None
        wanted = self._events[self._next_index]
        for seat in waiting:
            if seat_name(seat.thread) == wanted.seat:
                return seat
        self._diverge(None, wanted, self._why(wanted))
        return None

    def passed(self, seat: Seat, point: str, info: str) -> None:
        """The next event is another now."""
        self._own[seat_name(seat.thread)].pop()
        self._next_index += 1
        self.crew.changed.notify_all()

    def result(self) -> dict[str, Any]:
        """`order`: "same", or "diverged" with the event that should have come and the one that did."""
        left = len(self._events) - self._next_index
        if self._divergence is None and left:
            wanted = self._events[self._next_index]
            self._diverge(None, wanted, "the trial ended before it")
        return {
            "kind": "replay",
            "order": "same" if self._divergence is None else "diverged",
            "divergence": self._divergence,
            "replayed": self._next_index,
            "recorded": len(self._events),
        }

    def _is_next(self, thread: Thread) -> bool:
        own = self._own.get(seat_name(thread))
        return own is not None and own[-1:] == [self._next_index]

    def _expected(self, seat: str) -> Passed | None:
        own = self._own.get(seat)
        return self._events[own[-1]] if own else None

    def _why(self, wanted: Passed) -> str:
        able = self.crew.able(lambda seat: False)
        for seat in self.crew.seats.values():
            if seat_name(seat.thread) == wanted.seat and not seat.ended and seat.thread.ident not in able:
                return f"it cannot come: {self.crew.chain(seat, able)}"
        return "its thread has ended, or works for nobody"

    def _diverge(self, came: Passed | None, expected: Passed | None, why: str) -> None:
        """With the lock held."""
        self._divergence = {
            "index": self._next_index,
            "expected": None if expected is None else str(expected),
            "came": None if came is None else str(came),
            "why": why,
        }
        self.let_go()


def make(spec: ScheduleSpec, setting: Setting) -> Schedule | None:
    """From the recording in `spec["extra"]["recording"]`. Raises RecordingError."""
    del spec
    document = setting.extra.get("recording")
    if document is None:
        raise RecordingError('schedule = "replay" needs a recording; use harness replay')
    return Replay(Recording.from_json(document), setting)
