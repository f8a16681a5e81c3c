"""When a trial of a plan may end before its workers do: once its order cannot come about, all that it is for is known.

Only where the trial was asked to (`STOP_DECIDED`, which a bisection sets: what takes a trial most time is what comes
after). A trial whose order did come about goes on to its end, for that is where the effect shows. So does one in which
something else may be about to go wrong: threads that wait for one another in a circle, and a silence, are the watchdog's to
judge; an exception that has left a region is awaited where it is told of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

JOIN_S = 0.05
CALM = 2
"""Looks of the watchdog in a row that find nothing amiss after the plan was decided. What fails by then and has left no region
yet has from one look to the next."""

REASON = "stopped, since it was known that its plan's order cannot come about"


class Stopping:
    """`wanted`: the trial was asked to. `hopeless`: the schedule's word; `failing`: an exception is on its way somewhere."""

    def __init__(self, wanted: bool, hopeless: Callable[[], bool], failing: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._hopeless = hopeless
        self._failing = failing
        self._calm = 0
        self._over = threading.Event()

    def looked(self, circle: bool, moving: bool) -> None:
        """What a look of the watchdog found: a circle of waits; an event since the look before it, or a compile."""
        if self._wanted:
            calm = moving and not circle and self._hopeless() and not self._failing()
            self._calm = self._calm + 1 if calm else 0
            if self._calm >= CALM:
                self._over.set()

    def join(self, threads: Sequence[threading.Thread]) -> bool:
        """Wait for the end of all of them, or until that is of no use any more; whether they have ended."""
        if not self._wanted:
            for thread in threads:
                thread.join()  # the watchdog is the way out
            return True
        while alive := [thread for thread in threads if thread.is_alive()]:
            if self._over.is_set():
                return False
            alive[0].join(JOIN_S)
        return True
