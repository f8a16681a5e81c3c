"""What probes and the context tell a schedule: sync points passed, waits begun and ended.

With no schedule every method here is one call of an empty function. With one, `reach` may hold the thread that calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .identity import Thread, Threads
from .schedules.base import Hopes, Schedule, Wait


def _nothing(*_: object) -> None:
    return None


class Points:
    """`reach(point, info="")`, `blocked(wait)`, `unblocked()`, `trying(lock)`: always about the calling thread."""

    reach: Callable[..., None]
    blocked: Callable[[Wait], None]
    unblocked: Callable[[], None]
    trying: Callable[[str], None]

    def __init__(self) -> None:
        self.schedule: Schedule | None = None
        self.on = False
        """Whether anybody listens. Probes that exist for schedules alone stay away otherwise; the hottest ones ask, since
        that costs less than a call."""
        self.reach = self.blocked = self.unblocked = self.trying = _nothing

    def connect(self, schedule: Schedule, threads: Threads) -> None:
        """From now on everything is told to `schedule`."""
        current = threads.current

        def reach(point: str, info: str = "") -> None:
            schedule.reach(point, current(), info)

        def blocked(wait: Wait) -> None:
            schedule.blocked(current(), wait)

        def unblocked() -> None:
            schedule.unblocked(current())

        def trying(lock: str) -> None:
            schedule.trying(lock, current())

        self.schedule, self.on = schedule, True
        self.reach, self.blocked, self.unblocked, self.trying = reach, blocked, unblocked, trying

    # around a trial; each is a no-op without a schedule

    def begin(self, workers: Mapping[str, str]) -> None:
        """Before the workers' threads start: who there will be, and each one's role."""
        if self.schedule is not None:
            self.schedule.begin(workers)

    def started(self, thread: Thread) -> None:
        """First thing on a worker's thread."""
        if self.schedule is not None:
            self.schedule.thread_started(thread)

    def ended(self, thread: Thread) -> None:
        """Last thing on a worker's thread."""
        if self.schedule is not None:
            self.schedule.thread_ended(thread)

    def hopeless(self) -> bool:
        """Whether the schedule was to bring about an order, and knows that it cannot come about."""
        schedule: object = self.schedule
        return isinstance(schedule, Hopes) and schedule.hopeless

    def finish(self) -> dict[str, Any]:
        """What the schedule has to say, for `result.json`; {} without one."""
        return {} if self.schedule is None else self.schedule.finish()


SILENT = Points()
"""For probes outside of a trial (the doctor): nobody ever listens."""
