"""When a cycle of waits counts as a deadlock: what the watchdogs of a trial and of a watched program hold to alike."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.waitgraph import Edge, find_cycle

LOOK_S = 0.25
DEADLOCK_S = 5.0
PATIENCE = 4  # times the hang timeout, where a silence may be work: a compile of a large graph


class StandingCycle:
    """The edges are read without a lock, so a cycle counts only when every look for `deadlock_s` seconds found the same."""

    def __init__(self, deadlock_s: float) -> None:
        self._deadlock_s = deadlock_s
        self._cycle: list[Edge] = []
        self._since = 0.0
        self._told = False
        self.again = False  # the last look found the cycle of the look before it

    @property
    def edges(self) -> list[Edge]:
        """The cycle that the last look found; [] for none."""
        return self._cycle

    def look(self, edges: Iterable[Edge], now: float) -> str:
        """The cycle in words, at the first look at which it has stood long enough; else "". `now`: seconds, monotonic."""
        found = find_cycle(edges)
        self.again = bool(found) and found == self._cycle
        if not self.again:
            self._cycle, self._since, self._told = found, now, False
        elif not self._told and now - self._since >= self._deadlock_s:
            self._told = True
            return "; ".join(str(edge) for edge in found)
        return ""
