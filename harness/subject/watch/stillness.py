"""Which threads of a program have not moved, and since when: the sign of a hang in a program that reports nothing.

A thread moves when its innermost frame outside the standard library's locks and queues is another one, or is at another
instruction, than at the look before. A loop that spends its time in one call looks still by that: so the kernel, too, has
to say that the thread has not run since (`schedstat`). Only for a thread that is inside a lock or queue of the standard
library that does not count, since a wait that polls runs, and moves nothing.
"""

from __future__ import annotations

import linecache
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType

from harness.core.stuck.outside import OUTSIDE_CALLS, OUTSIDE_FILES

from . import syscalls

BUSY = 0.2  # processors

Machinery = Callable[[str], bool]
"""Whether a file is the standard library's for locks and queues."""
NativeId = Callable[[int], int]
"""A thread's number for the kernel by its ident; 0 when it is not known."""


@dataclass
class _Place:
    """Where a thread stands. `ran`: what the kernel said when it was asked first, and `rests` since when it says so."""

    at: tuple[int, int]
    since: float
    inside: bool  # a lock or queue
    ran: str | None = None
    rests: float = 0.0


class Stillness:
    """`look` at every turn of the watchdog; times are `time.monotonic()`."""

    def __init__(
        self, machinery: Machinery, native_id: NativeId, *, ask_after_s: float = 1.0, late_s: float = float("inf")
    ) -> None:
        """`late_s`: a look that comes so long after the one before says nothing of the time between: nobody could run then."""
        self._machinery = machinery
        self._late_s = late_s
        self._looked: float | None = None
        self._native_id = native_id
        self._ask_after_s = ask_after_s
        self._asked = 0.0
        self._places: dict[int, _Place] = {}
        self._processor: list[tuple[float, float]] = []  # (when, seconds of processor time used)

    def look(self, now: float, own: int) -> dict[int, float]:
        """Ident → since when the thread has not moved; not of thread `own`."""
        gap = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        if gap > self._late_s:
            for place in self._places.values():
                place.since, place.rests = place.since + gap, place.rests + gap
        frames = sys._current_frames()
        found: dict[int, _Place] = {}
        for ident, frame in frames.items():
            if ident == own:
                continue
            at = _where(frame, self._machinery)
            before = self._places.get(ident)
            inside = self._machinery(frame.f_code.co_filename)
            if before is None or before.at != at:
                before = _Place(at, now, inside)
            before.inside = inside
            found[ident] = before
        self._places = found
        del frames  # a frame that is kept keeps its variables
        if now - self._asked >= self._ask_after_s / 2:
            self._asked = now
            self._ask(now)
        return {ident: self._since(place, now) for ident, place in found.items()}

    def _ask(self, now: float) -> None:
        """The kernel, of threads that have stood a while: to ask of all every time would cost."""
        for ident, place in self._places.items():
            if place.inside or now - place.since < self._ask_after_s:
                continue
            ran = _ran(self._native_id(ident))
            if place.ran is None or ran != place.ran:
                place.ran, place.rests = ran, now

    def _since(self, place: _Place, now: float) -> float:
        if place.inside:
            return place.since
        if place.ran is None:
            return now
        # Between the two lies the time until the kernel was asked first, in which the thread is taken to have rested, too.
        return place.since if place.rests - place.since <= 2 * self._ask_after_s else place.rests

    def place(self, ident: int) -> tuple[int, int]:
        """Where the thread stood at the last look."""
        return self._places[ident].at

    def there(self, idents: Iterable[int]) -> bool:
        """Whether all of these still stand where they stood then."""
        frames = sys._current_frames()
        return all(
            ident in frames and ident in self._places and _where(frames[ident], self._machinery) == self._places[ident].at
            for ident in idents
        )

    def busy(self, now: float, since: float) -> bool:
        """Whether the process computed since then: more than a fifth of one processor."""
        self._processor.append((now, time.process_time()))
        while len(self._processor) > 2 and self._processor[1][0] <= since:
            self._processor.pop(0)
        if len(self._processor) > 4096:
            del self._processor[1:-1:2]
        began, used = self._processor[0]
        return now > began and (self._processor[-1][1] - used) / (now - began) > BUSY


def _where(frame: FrameType | None, machinery: Machinery) -> tuple[int, int]:
    while frame is not None and machinery(frame.f_code.co_filename):
        frame = frame.f_back
    return (0, 0) if frame is None else (id(frame), frame.f_lasti)


def _ran(native_id: int) -> str:
    """How often, and how long, the thread was on a processor; "" where the kernel does not say."""
    try:
        with open(f"/proc/self/task/{native_id}/schedstat", encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def waits_outside(idents: Iterable[int], native_id: NativeId) -> bool:
    """Whether one of the threads waits for something that is not in this process, by its file or line or by the kernel."""
    frames = sys._current_frames()
    for ident in idents:
        frame = frames.get(ident)
        if frame is None:
            continue
        file = frame.f_code.co_filename
        if OUTSIDE_FILES.search(file) or OUTSIDE_CALLS.search(linecache.getline(file, frame.f_lineno)):
            return True
        if syscalls.outside(native_id(ident)):
            return True
    return False
