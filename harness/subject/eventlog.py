"""Events of one trial, written by many threads without a lock, a system call or a copy shared between threads.

Each thread owns a chunk of a memory-mapped file and writes whole JSON lines into it. A lock would order the threads,
and a `write` would release the interpreter lock, which is a scheduling point: either could cure or cause the very race
that is being observed. The kernel keeps the map after the process is gone (`harness.core.eventfile`).
"""

from __future__ import annotations

import itertools
import json
import mmap
import threading
import time
from pathlib import Path

from harness.core.eventfile import CHUNK_BYTES, RAW_NAME, merge

from .identity import Threads

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
        path = folder / RAW_NAME
        with open(path, "w+b") as file:
            file.truncate(self._chunks * CHUNK_BYTES)  # sparse: pages appear when written
            self._map = mmap.mmap(file.fileno(), self._chunks * CHUNK_BYTES)

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
        index = next(self._taken)
        if index >= self._chunks:
            return False
        own.pos = index * CHUNK_BYTES
        own.end = own.pos + CHUNK_BYTES
        return True

    def close(self) -> None:
        """Sort everything into `events.jsonl`. Threads that still run must not emit afterwards."""
        self._enabled = False
        self._map.flush()
        merge(self._folder)


def text(value: str) -> str:
    """`value` as a JSON string literal, for `extra` (event kinds and region names need none)."""
    return json.dumps(value)

