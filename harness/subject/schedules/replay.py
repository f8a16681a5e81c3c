"""`replay`: the same order of sync points again, or the first event that differs.

Like Shuttle's replay scheduler, on the points of `serial`. Departure: locks are real, and who takes one is decided between
two points, so a thread that is about to try a lock is held there until its `acquired` is next (`trying`). A thread that
comes to another point than the recording says is the first difference, and is held; the others follow the order for as
long as it does not ask for that thread. An order that cannot go on is a difference too, and then everybody is let go.

Which thread runs between two points is not recorded. A thread runs on at once after its point, unless the event that it
comes to next is one of `late` (`spec["extra"]["late"]`): then it runs on only when that event is next. Where a recording
was made of threads that ran at the same time (`delays`), a read that came late can only be had so; `harness replay` finds
out which, by the divergences.

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
from .crew import Seat, seat_name
from .serial import Serial

_TRYING = "(about to take a lock)"
_ACQUIRED = {"strategy": "strategy_lock.acquired", "compile": "compile_lock.acquired"}


class Replay(Serial):
    """`_next_index`: the event that is to come."""

    def __init__(self, recording: Recording, setting: Setting) -> None:
        super().__init__(setting)
        self._late = frozenset(setting.extra.get("late", ()))
        self._parked: set[str] = set()  # seats whose point has been passed, but which do not run on yet
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
                if not self.over and (expected is None or came != self._events[expected]):
                    self._differs(came, expected, "another point came")
        super().reach(point, thread, info)

    def trying(self, lock: str, thread: Thread) -> None:
        """Not before its turn: else it would have the lock that another one had first."""
        if self.over or not self._mine(thread):
            return
        with self.crew.changed:
            expected = self._expected(seat_name(thread))
            if self.over or expected is None or self._events[expected].point != _ACQUIRED[lock]:
                return
            self.wait_for_turn(self.crew.arrive(thread, _TRYING, lock))

    def choose(self, waiting: Sequence[Seat]) -> Seat | None:
        """The seat of the next event, if it is there, or at the lock that it will then have."""
        seats = {seat_name(seat.thread): seat for seat in waiting}
        while self._next_index < len(self._events):
            wanted = self._events[self._next_index]
            seat = seats.get(wanted.seat)
            if seat is None or seat.at is None:
                if self._parked:  # it may wait for what one of these has yet to do
                    soonest = min(self._parked, key=lambda name: self._own[name][-1])
                    self._parked.discard(soonest)
                    return seats[soonest]
                self._differs(None, self._next_index, self._why(wanted))
                return None
            if wanted.seat in self._parked or seat.at.point == _TRYING:
                self._parked.discard(wanted.seat)
                return seat
            if (seat.at.point, seat.at.info) != (wanted.point, wanted.info):
                return None  # it went another way, which was noted when it came
            own = self._own[wanted.seat]
            own.pop()
            self._next_index += 1
            if not own or own[-1] not in self._late:
                return seat
            self._parked.add(wanted.seat)
        return None

    def result(self) -> dict[str, Any]:
        """`order`: "same", or "diverged" with the event that should have come and the one that did."""
        left = len(self._events) - self._next_index
        if self._divergence is None and left:
            self._differs(None, self._next_index, "the trial ended before it")
        return {
            "kind": "replay",
            "order": "same" if self._divergence is None else "diverged",
            "divergence": self._divergence,
            "replayed": self._next_index,
            "recorded": len(self._events),
        }

    def _expected(self, seat: str) -> int | None:
        """The index of the event that this seat comes to next; None when it should come to none."""
        own = self._own.get(seat)
        return own[-1] if own else None

    def _why(self, wanted: Passed) -> str:
        able = self.crew.able(lambda seat: False)
        for seat in self.crew.seats.values():
            if seat_name(seat.thread) == wanted.seat and not seat.ended and seat.thread.ident not in able:
                return f"it cannot come: {self.crew.chain(seat, able)}"
        return "its thread has ended, or works for nobody"

    def _ahead(self) -> set[int]:
        """The events at which others wait already: what lies before them has happened, perhaps too early."""
        waiting = [seat_name(seat.thread) for seat in self.crew.seats.values() if seat.at is not None]
        return {own[-1] for name in waiting if name not in self._parked and (own := self._own.get(name))}

    def _differs(self, came: Passed | None, expected: int | None, why: str) -> None:
        """The first time counts. With the lock held; `expected`: an index."""
        self._divergence = self._divergence or {
            "index": self._next_index if expected is None else expected,
            "expected": None if expected is None else str(self._events[expected]),
            "came": None if came is None else str(came),
            "why": why,
            "ahead": sorted(self._ahead()),
        }


def make(spec: ScheduleSpec, setting: Setting) -> Schedule | None:
    """From the recording in `spec["extra"]["recording"]`. Raises RecordingError."""
    del spec
    document = setting.extra.get("recording")
    if document is None:
        raise RecordingError('schedule = "replay" needs a recording; use harness replay')
    return Replay(Recording.from_json(document), setting)
