"""The mapped file of events: a disk without room costs events, and no descriptor of the program is touched."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from harness.core.eventfile import CHUNK_BYTES, RAW_NAME, read_raw
from harness.subject.eventlog import AHEAD, EventLog
from harness.subject.identity import Threads
from harness.subject.mapped import HIGH_FD
from harness.subject.watch.log import WatchLog
from harness.subject.watch.threads import WatchedThreads


class Disk:
    """In place of `posix_fallocate`; `refuses`: the error number with which it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses = 0
        self._real = os.posix_fallocate
        monkeypatch.setattr(os, "posix_fallocate", self)

    def __call__(self, fd: int, offset: int, size: int) -> None:
        if self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))
        self._real(fd, offset, size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_what_the_disk_has_no_room_for_is_counted_and_tried_again_later(tmp_path: Path, disk: Disk, number: int) -> None:
    log = EventLog(tmp_path, Threads(), max_bytes=2 * CHUNK_BYTES)
    disk.refuses = number
    for _ in range(500):
        log.emit("step.done")
    assert log.dropped == {"step.done": 500}
    assert os.stat(tmp_path / RAW_NAME).st_blocks == 0
    disk.refuses = 0
    log._ask_at_ns = 0  # a second later
    for _ in range(100):
        log.emit("step.done")
    assert log.dropped == {"step.done": 500}  # and no chunk was lost by the refusal
    assert len(read_raw(tmp_path / RAW_NAME)[0]) == 100


def test_a_chunk_is_written_only_where_the_disk_has_given_it(tmp_path: Path, disk: Disk) -> None:
    log = EventLog(tmp_path, Threads())
    log.emit("step.done")
    assert os.stat(tmp_path / RAW_NAME).st_blocks * 512 >= AHEAD * CHUNK_BYTES
    disk.refuses = errno.ENOSPC
    for _ in range(10_000):
        log.emit("step.done")
    events, cut = read_raw(tmp_path / RAW_NAME)
    assert (len(events) + log.dropped["step.done"], cut) == (10_001, 0)
    assert os.stat(tmp_path / RAW_NAME).st_blocks * 512 <= (AHEAD + 1) * CHUNK_BYTES


def test_a_system_that_cannot_be_asked_leaves_the_file_sparse(tmp_path: Path, disk: Disk) -> None:
    disk.refuses = errno.EOPNOTSUPP
    log = EventLog(tmp_path, Threads())
    log.emit("step.done")
    assert log.dropped == {}


def test_a_watch_goes_on_in_the_chunks_that_it_has(tmp_path: Path, disk: Disk) -> None:
    log = WatchLog(tmp_path, WatchedThreads(), max_bytes=64 * CHUNK_BYTES)
    log.emit("region.enter")
    disk.refuses = errno.ENOSPC
    for number in range(30_000):
        log.emit("compile.start" if number % 3_000 == 0 else "region.enter")
    events, cut = read_raw(tmp_path / RAW_NAME)
    assert cut == 0
    assert len(events) + log.written_over + sum(log.dropped.values()) == 30_001
    assert len(set(log._free)) == len(log._free)  # no chunk twice: two threads would write into it
    assert len(set(log._samples)) == len(log._samples)
    log.stop()


def test_the_map_takes_no_low_number(tmp_path: Path) -> None:
    lowest = os.dup(0)
    os.close(lowest)
    EventLog(tmp_path, Threads())
    after = os.dup(0)
    os.close(after)
    assert after == lowest
    assert all(number >= HIGH_FD for number in _mapped(tmp_path / RAW_NAME))


def test_a_number_that_the_program_took_over_is_not_closed(tmp_path: Path) -> None:
    """As a daemon does: it closes all numbers, and opens files of its own; then comes a fork that is followed."""
    (tmp_path / "child").mkdir()
    log = WatchLog(tmp_path, WatchedThreads(), max_bytes=4 * CHUNK_BYTES)
    numbers = _mapped(tmp_path / RAW_NAME)
    read, write = os.pipe()
    for number in numbers:
        os.dup2(write, number)
    log.reopen(tmp_path / "child")
    gc.collect()
    assert all(os.fstat(number).st_ino == os.fstat(write).st_ino for number in numbers)
    log.emit("dense.call")
    assert [event["k"] for event in read_raw(tmp_path / "child" / RAW_NAME)[0]] == ["dense.call"]
    log.stop()
    os.close(read)
    os.close(write)


def _mapped(path: Path) -> list[int]:
    """Open descriptors of this file (none from Python 3.13 on)."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.path.samestat(os.stat(path), os.stat(f"/proc/self/fd/{name}")):
                found.append(int(name))
        except OSError:  # the listing's own
            continue
    return found
