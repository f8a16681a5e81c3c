"""Events of one trial, written by many threads without a lock, a system call or a copy shared between threads.

Each thread owns a chunk of a memory-mapped file and writes whole JSON lines into it. A lock would order the threads,
and a `write` would release the interpreter lock, which is a scheduling point: either could cure or cause the very race
that is being observed. The kernel keeps the map after the process is gone (`harness.core.eventfile`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time
from collections import deque
from pathlib import Path

from harness.core.eventfile import CHUNK_BYTES, RAW_NAME, merge

from .identity import Threads
from .mapped import map_new, reserve

AHEAD = 16  # chunks that are asked of the disk at a time: to ask is a system call
ASK_AGAIN_NS = 1_000_000_000  # a full disk may have room later

_now = time.perf_counter_ns


class _Chunk(threading.local):
    """Where this thread writes: position and end in the map, equal when it has no chunk yet."""

    pos = 0
    end = 0


class EventLog:
    """Bounded: `max_bytes` in all; what does not fit is counted in `dropped`, by kind, never an error."""

    def __init__(self, folder: Path, threads: Threads, *, enabled: bool = True, max_bytes: int = 64 << 20) -> None:
        self._folder = folder
        self._threads = threads
        self._enabled = enabled
        self._chunks = max_bytes // CHUNK_BYTES
        self._taken = itertools.count()  # its next() is atomic under the interpreter lock
        self._own = _Chunk()
        self.dropped: dict[str, int] = {}
        self.start_ns = _now()
        self.last_ns = 0  # time of the newest event; the watchdog's sign of life
        self._path = os.path.abspath(folder / RAW_NAME)  # the program may go to another folder
        self._map = map_new(folder / RAW_NAME, self._chunks * CHUNK_BYTES)
        self._reserved = 0  # chunks that the disk has given
        self._refused: deque[int] = deque()  # chunks that it did not give
        self._ask_at_ns = 0

    def now_ns(self) -> int:
        """Nanoseconds since the subject started."""
        return _now() - self.start_ns

    def emit(self, kind: str, extra: str = "") -> int:
        """Write one event; `extra` is further JSON members with a leading comma. Returns its time."""
        at = _now() - self.start_ns
        self.last_ns = at
        if not self._enabled:
            return at
        thread = self._threads.current()
        line = f'{{"t":{at},{thread.head},"w":"{thread.worker}","k":"{kind}"{extra}}}\n'.encode()
        size = len(line)
        own = self._own
        if own.pos + size > own.end and not self._take(own, size):
            self.dropped[kind] = self.dropped.get(kind, 0) + 1
            return at
        self._map[own.pos : own.pos + size] = line
        own.pos += size
        return at

    def _take(self, own: _Chunk, size: int) -> bool:
        if size > CHUNK_BYTES:
            return False
        index = self._fresh()
        if index < 0:
            return False
        own.pos = index * CHUNK_BYTES
        own.end = own.pos + CHUNK_BYTES
        return True

    def _fresh(self) -> int:
        """A chunk that nobody has had, with room for it on the disk; -1 where there is none, of either."""
        now = _now()
        if now < self._ask_at_ns:
            return -1
        try:
            index = self._refused.popleft()
        except IndexError:
            index = next(self._taken)
            if index < self._reserved:
                return index
        if index >= self._chunks:
            return -1
        # Another thread may ask for the same at this moment: that does no harm, and a lock would order the two.
        until = min(index + AHEAD, self._chunks)
        if reserve(self._path, index * CHUNK_BYTES, (until - index) * CHUNK_BYTES):
            self._reserved = until
            return index
        self._refused.append(index)
        self._ask_at_ns = now + ASK_AGAIN_NS
        return -1

    def close(self) -> None:
        """Sort everything into `events.jsonl`. Threads that still run must not emit afterwards.

        Where the disk has no room for that, the raw file stays: the control side tries again, and says so.
        """
        self._enabled = False
        self._map.flush()
        with contextlib.suppress(OSError):
            merge(self._folder)


def text(value: str) -> str:
    """`value` as a JSON string literal, for `extra` (event kinds and region names need none)."""
    return json.dumps(value)

