"""Events of a program that may run for days, in a file of fixed size.

As in a trial (`harness.subject.eventlog`) each thread writes whole lines into a chunk of its own. Here a full chunk is
judged: it stays if it, the one before it or the one after it holds something out of the ordinary (anything but the beat
of warm steps), so that what is interesting keeps its surroundings. Of the others every n-th stays as a sample, n doubling
as the samples fill; the rest is written over. So the last events of every thread are always there, and memory and disk
have a bound: `MAX_BYTES`, which is also what the mapped file can add to the process.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from harness.core.eventfile import CHUNK_BYTES

from ..eventlog import EventLog
from ..identity import Threads

MAX_BYTES = 16 << 20
FIRST = 256  # chunks of the first interesting windows: they hold the causes
LATEST = 256  # and of the latest
SAMPLES = 128
STEADY = frozenset({"engine.enter", "engine.exit", "region.enter", "region.exit", "step.done"})
"""Kinds that a warm step emits."""

_EMPTY = bytes(CHUNK_BYTES)
_now = time.perf_counter_ns


class _Writer:
    """One thread's place in the map. `older`, `before`, `marked`: whether those chunks are out of the ordinary."""

    __slots__ = ("before", "chunk", "end", "log", "marked", "older", "pos", "previous")

    def __init__(self, log: WatchLog) -> None:
        self.log = log
        self.pos = self.end = 0
        self.chunk = self.previous = -1
        self.marked = self.before = self.older = False

    def __del__(self) -> None:
        self.log.thread_ended(self)


class _Own(threading.local):
    writer: _Writer | None = None


class WatchLog(EventLog):
    """Bounded for good. `dropped` counts what found no place at all: more threads at a time than the file has chunks."""

    def __init__(self, folder: Path, threads: Threads, *, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(folder, threads, max_bytes=max_bytes)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._writers = _Own()
        self._free: deque[int] = deque()
        self._first: list[int] = []
        self._latest: deque[int] = deque()
        self._samples: list[int] = []
        self._passed = itertools.count()
        self._sampling = threading.Lock()  # never waited for: who finds it taken leaves its chunk out of the sample
        self.every = 1  # of the chunks without interest, one in so many stays
        self.written_over = 0  # events
        self.windows_lost = 0  # interesting chunks, between the first and the latest

    def reopen(self, folder: Path) -> None:
        """In the child of a fork: a file of its own; what the parent's threads had is the parent's."""
        super().__init__(folder, self._threads, max_bytes=self._chunks * CHUNK_BYTES)
        self._begin()

    def stop(self) -> None:
        """No further event: the process ends, or is the child of a fork that nobody follows."""
        self._enabled = False

    def mark(self) -> None:
        """What this thread just wrote is interesting after all: it took long."""
        writer = self._writers.writer
        if writer is not None:
            writer.marked = True

    def emit(self, kind: str, extra: str = "") -> int:
        """As in a trial."""
        at = _now() - self.start_ns
        self.last_ns = at
        if not self._enabled:
            return at
        thread = self._threads.current()
        line = f'{{"t":{at},{thread.head},"w":"{thread.worker}","k":"{kind}"{extra}}}\n'.encode()
        size = len(line)
        writer = self._writers.writer
        if writer is None:
            writer = self._writers.writer = _Writer(self)
        if writer.pos + size > writer.end and not self._turn(writer, size):
            self.dropped[kind] = self.dropped.get(kind, 0) + 1
            return at
        self._map[writer.pos : writer.pos + size] = line
        writer.pos += size
        if kind not in STEADY:
            writer.marked = True
        return at

    def _turn(self, writer: _Writer, size: int) -> bool:
        """The writer's chunk is full: judge the one before it, and give it another to write into."""
        if size > CHUNK_BYTES:
            return False
        previous, writer.previous = writer.previous, -1  # handed on below, once, also where there is no other to have
        if previous < 0:
            fresh = self._another()
        elif writer.marked or writer.before or writer.older:
            self._keep(previous)
            fresh = self._another()
        else:
            fresh = self._sample(previous)
        if fresh < 0:
            return False
        if writer.chunk >= 0:
            writer.previous = writer.chunk
            writer.older, writer.before, writer.marked = writer.before, writer.marked, False
        writer.chunk = fresh
        writer.pos = fresh * CHUNK_BYTES
        writer.end = writer.pos + CHUNK_BYTES
        return True

    def thread_ended(self, writer: _Writer) -> None:
        """Called as the thread's own storage goes; also in the child of a fork, where the file is the parent's."""
        if not self._enabled or os.getpid() != self._pid:
            return
        keep = writer.marked or writer.before or writer.older
        for chunk in (writer.previous, writer.chunk):
            if chunk < 0:
                continue
            if keep:
                self._keep(chunk)
            elif (fresh := self._sample(chunk)) >= 0:
                self._free.append(fresh)

    def _another(self) -> int:
        """A chunk to write into; -1 when all are in use."""
        try:
            return self._free.popleft()
        except IndexError:
            index = self._fresh()
        if index >= 0:
            return index
        try:
            victim = self._latest.popleft()  # who writes now comes before what was interesting long ago
        except IndexError:
            return -1
        self.windows_lost += 1
        return self._clear(victim)

    def _keep(self, chunk: int) -> None:
        if len(self._first) < min(FIRST, self._chunks // 4):
            self._first.append(chunk)
            return
        self._latest.append(chunk)
        if len(self._latest) > min(LATEST, self._chunks // 4):
            self.windows_lost += 1
            self._free.append(self._clear(self._latest.popleft()))

    def _sample(self, chunk: int) -> int:
        """A chunk to write into, in place of one that holds nothing of interest: that one, unless it is a sample."""
        if next(self._passed) % self.every or not self._sampling.acquire(blocking=False):
            return self._clear(chunk)
        try:
            self._samples.append(chunk)
            if len(self._samples) > min(SAMPLES, self._chunks // 8):
                for other in self._samples[1::2]:
                    self._free.append(self._clear(other))
                self._samples = self._samples[::2]
                self.every *= 2
        finally:
            self._sampling.release()
        return self._another()

    def _clear(self, chunk: int) -> int:
        begin = chunk * CHUNK_BYTES
        self.written_over += self._map[begin : begin + CHUNK_BYTES].count(b"\n")
        self._map[begin : begin + CHUNK_BYTES] = _EMPTY
        return chunk

    def account(self) -> dict[str, Any]:
        """What is not in the file, for the report."""
        return {
            "limit_bytes": self._chunks * CHUNK_BYTES,
            "written_over": self.written_over,
            "windows_lost": self.windows_lost,
            "one_in": self.every,
            "dropped": dict(self.dropped),
        }
