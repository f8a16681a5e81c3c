"""When a trial of a plan may end before its workers do: once its order cannot come about, all that it is for is known.

Only where the trial was asked to (`extra["stop_decided"]`, which a bisection sets: what takes a trial most time is what comes
after). A trial whose order did come about goes on to its end, for that is where the effect shows; so does one whose threads
wait for one another in a circle, which is the watchdog's to judge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from harness.core.waitgraph import Edge, find_cycle

LOOK_S = 0.05
"""How often it is asked. A failure that is on its way when the plan is decided has from one look to the next."""

REASON = "stopped, since it was known that its plan's order cannot come about"


class Stopping:
    """`wanted`: the trial was asked to. `hopeless`: the schedule's word; `edges`: who waits for whom."""

    def __init__(self, wanted: bool, hopeless: Callable[[], bool], edges: Callable[[], list[Edge]]) -> None:
        self._wanted = wanted
        self._hopeless = hopeless
        self._edges = edges

    def join(self, threads: Sequence[threading.Thread]) -> bool:
        """Wait for the end of all of them, or until that is of no use any more; whether they have ended."""
        if not self._wanted:
            for thread in threads:
                thread.join()  # the watchdog is the way out
            return True
        quiet = 0
        while any(thread.is_alive() for thread in threads):
            next(thread for thread in threads if thread.is_alive()).join(LOOK_S)
            quiet = quiet + 1 if self._hopeless() and not find_cycle(self._edges()) else 0
            if quiet > 1:
                return not any(thread.is_alive() for thread in threads)
        return True
