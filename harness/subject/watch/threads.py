"""Who the threads of a watched program are: each is its own worker, by its name.

A program may start a thread a request, so names do not stay apart without end: beyond `MOST` of them, numbers in a name
are put together (`Thread-N (serve)`), and beyond twice as many all the others are one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ..identity import Thread, Threads

MOST = 200
MOST_TASKS = 4096
MOST_ENDED = 1000
OTHERS = "other threads"
OWN_NAME = "harness-watchdog"

_UNFIT = re.compile(r'["\\\x00-\x1f\x7f-\x9f\ud800-\udfff]')
_NUMBER = re.compile(r"\d+")


def fit(name: str) -> str:
    """The name as it can stand in an event: no quotes, no control characters, not without end."""
    return _UNFIT.sub("'", name)[:100]


@dataclass
class Sums:
    """What a worker spent where, in nanoseconds."""

    engine_runs: int = 0
    engine_ns: int = 0
    engine_longest_ns: int = 0
    lock_waits: int = 0
    lock_wait_ns: int = 0
    lock_longest_ns: int = 0
    steps: int = 0
    regions: dict[str, list[int]] = field(default_factory=dict)  # name → [times, nanoseconds, longest]


class WatchedThread(Thread):
    """A thread and its worker's sums."""

    sums: Sums
    engine_began = 0
    lock_began = 0
    saved_ns = 0


class WatchedThreads(Threads):
    """Records by ident, as in a trial; the sums by worker."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, Sums] = {}
        self.ended: dict[int, str] = {}
        self.last_end_ns = -1
        self.now_ns: Callable[[], int] = lambda: 0  # the log's clock, once there is a log

    def _make(self) -> Thread:
        made = super()._make()
        made.worker = "" if made.engine else self.worker_name(made.name)
        thread = WatchedThread(made.name, made.ident, made.native_id, made.engine, made.head, made.worker)
        thread.sums = self.sums_of(made.worker)
        return thread

    def own(self) -> Thread:
        """The calling thread is the harness's: known to its log, unseen by everything that looks at threads."""
        ident = threading.get_ident()
        record = WatchedThread(
            OWN_NAME, ident, threading.get_native_id(), False, f'"th":"{OWN_NAME}","id":{ident}'
        )
        record.sums = Sums()
        self._local.record = record
        return record

    def worker_name(self, name: str) -> str:
        """The name under which a thread of that name is counted."""
        name = fit(name)
        if name in self.sums or len(self.sums) < MOST:
            return name
        pooled = _NUMBER.sub("N", name)
        return pooled if pooled in self.sums or len(self.sums) < 2 * MOST else OTHERS

    def sums_of(self, worker: str) -> Sums:
        """The worker's sums, opened at its first mention."""
        return self.sums.setdefault(worker, Sums())

    def tag_task(self, task: int, worker: str, device: str) -> None:
        """As in a trial; there are as many tasks as steps, so the oldest are forgotten."""
        super().tag_task(task, worker, device)
        if len(self._tasks) > MOST_TASKS:
            for old in list(self._tasks)[: MOST_TASKS // 2]:
                self._tasks.pop(old, None)

    def label_of(self, ident: int) -> str:
        """As in a trial; an ident is used again, so who lives comes before who was seen, and who was seen before who ended."""
        seen = self.by_ident.get(ident)
        living = threading._active.get(ident)  # type: ignore[attr-defined]
        if living is None or isinstance(living, threading._DummyThread):
            return self.ended.get(ident, "") if seen is None else seen.label()
        return seen.label() if seen is not None and seen.name == living.name else str(living.name)

    def native_id(self, ident: int) -> int:
        """Its number for the kernel; 0 when it is not known."""
        living = threading._active.get(ident)  # type: ignore[attr-defined]
        seen = self.by_ident.get(ident)
        return getattr(living, "native_id", None) or (0 if seen is None else seen.native_id)

    def thread_ended(self, ident: int, name: str) -> None:
        """Keep its name: it may have ended with a lock in its hands."""
        self.ended[ident] = name
        self.last_end_ns = self.now_ns()
        if len(self.ended) > MOST_ENDED:
            for old in list(self.ended)[: MOST_ENDED // 2]:
                self.ended.pop(old, None)

    def forked(self) -> None:
        """In the child: only the calling thread is left."""
        mine = self.current()
        self.by_ident.clear()
        self.by_ident[mine.ident] = mine
        self._tasks.clear()
        self.sums.clear()
        if isinstance(mine, WatchedThread):
            mine.sums = self.sums_of(mine.worker)
        mine.step = 0


def sums_now(thread: Thread) -> Sums:
    """The sums that the thread adds to."""
    assert isinstance(thread, WatchedThread)
    return thread.sums
