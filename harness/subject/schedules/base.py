"""What a schedule is: who may pass a sync point, and when.

Every method is called on the thread that it is about, from deep inside torch at times, so a schedule may wait (a point is
there to be waited at) but must not raise, and must let everybody go in the end: a hold that outlives its purpose is a hang
that the subject did not cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..identity import Thread, Threads

Member = str | int
"""Whom a wait is for: a worker's name, or a thread's ident."""

LOCK, BARRIER, ENGINE, QUEUE = "lock", "barrier", "engine", "queue"
"""Kinds of waits. A plan that cannot go on because of a queue is starved by itself; because of another kind, excluded."""


def _anybody() -> Sequence[Member] | None:
    return None


@dataclass(frozen=True)
class Wait:
    """Something that a thread waits for.

    what    as people read it: "torch's compile lock", "the strategy lock"
    on      who can end the wait, as of now: () for nobody, since it is over; None when that is not known (anybody)
    any_of  one of them is enough (a queue's producers); else all are needed (a lock's holders)
    """

    what: str
    on: Callable[[], Sequence[Member] | None] = _anybody
    any_of: bool = False
    kind: str = LOCK


class Schedule(Protocol):
    """One way to decide. Registered in `harness.subject.schedules` under the value of the axis `schedule`."""

    def begin(self, workers: Mapping[str, str]) -> None:
        """Before the workers' threads start: their names and roles. On the main thread."""

    def thread_started(self, thread: Thread) -> None:
        """A worker's thread begins; it has done nothing yet. May hold it."""

    def thread_ended(self, thread: Thread) -> None:
        """A worker's thread is about to end, well or not, having given back what it held."""

    def reach(self, point: str, thread: Thread, info: str) -> None:
        """`thread` is at a sync point. Returns when it may pass."""

    def trying(self, lock: str, thread: Thread) -> None:
        """`thread` is about to try to take a lock. Not a point: nothing is counted. Returns when it may."""

    def blocked(self, thread: Thread, wait: Wait) -> None:
        """`thread` is about to wait; comes before every wait that the harness knows of. Must not hold it."""

    def unblocked(self, thread: Thread) -> None:
        """It waits no more. Must not hold it."""

    def finish(self) -> dict[str, Any]:
        """What came of it, as JSON values; lets go of everybody. On the main thread or the watchdog's, once or twice."""


@runtime_checkable
class Hopes(Protocol):
    """A schedule that is to bring about an order, and may find that it cannot."""

    @property
    def hopeless(self) -> bool:
        """It was found that the order cannot come about in this trial; for any thread, without a wait."""
        ...


@dataclass(frozen=True)
class Setting:
    """What a schedule is made from. `extra`: the trial's `spec["extra"]`."""

    extra: Mapping[str, Any]
    threads: Threads
    folder: Path
    now_ns: Callable[[], int]
    facts: Mapping[str, Any]  # versions and scenario, for a recording's head


class Listening:
    """Hears everything and does nothing: the doctor's, to see which points can be had."""

    def begin(self, workers: Mapping[str, str]) -> None:
        """Nothing."""

    def thread_started(self, thread: Thread) -> None:
        """Nothing."""

    def thread_ended(self, thread: Thread) -> None:
        """Nothing."""

    def reach(self, point: str, thread: Thread, info: str) -> None:
        """Nothing."""

    def trying(self, lock: str, thread: Thread) -> None:
        """Nothing."""

    def blocked(self, thread: Thread, wait: Wait) -> None:
        """Nothing."""

    def unblocked(self, thread: Thread) -> None:
        """Nothing."""

    def finish(self) -> dict[str, Any]:
        """Nothing."""
        return {}
