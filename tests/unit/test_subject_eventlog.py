"""The event log: whole lines from many threads, bounded, readable after a death."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from harness.core.eventfile import CHUNK_BYTES, LINES_NAME, RAW_NAME, merge, read_raw
from harness.subject.eventlog import EventLog
from harness.subject.identity import Threads

THREADS, EACH = 8, 500


def events(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / LINES_NAME).read_text().splitlines()]


def test_many_threads_write_whole_lines_and_lose_none(tmp_path: Path) -> None:
    log = EventLog(tmp_path, Threads())
    start = threading.Barrier(THREADS)

    def write(index: int) -> None:
        start.wait(10)
        for number in range(EACH):
            log.emit("x", f',"thread":{index},"n":{number},"pad":"{"p" * (number % 200)}"')

    threads = [threading.Thread(target=write, args=(i,), name=f"w{i}") for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    found = events(tmp_path)
    assert len(found) == THREADS * EACH
    assert [e["t"] for e in found] == sorted(e["t"] for e in found)
    for index in range(THREADS):
        own = [e for e in found if e["thread"] == index]
        assert [e["n"] for e in own] == list(range(EACH))
        assert {e["th"] for e in own} == {f"w{index}"}
    assert not log.dropped


def test_what_does_not_fit_is_counted_by_kind(tmp_path: Path) -> None:
    log = EventLog(tmp_path, Threads(), max_bytes=2 * CHUNK_BYTES)
    for _ in range(1000):
        log.emit("step.done")
    log.emit("huge", f',"x":"{"y" * CHUNK_BYTES}"')
    log.close()
    assert len(events(tmp_path)) + log.dropped["step.done"] == 1000
    assert log.dropped["huge"] == 1
    assert 0 < len(events(tmp_path)) < 1000


def test_a_process_that_dies_leaves_its_events(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        log = EventLog(tmp_path, Threads())
        log.emit("before.death", ',"n":1')
        os._exit(9)
    os.waitpid(pid, 0)
    assert (tmp_path / RAW_NAME).exists()
    assert merge(tmp_path) == (1, 0)
    assert events(tmp_path)[0]["k"] == "before.death"
    assert merge(tmp_path) == (0, 0), "nothing is left to merge"


def test_a_line_that_was_cut_is_left_out_and_counted(tmp_path: Path) -> None:
    raw = tmp_path / RAW_NAME
    first = b'{"t":2,"k":"b"}\n{"t":3,"k":"cu'
    second = b'{"t":1,"k":"a"}\n'
    raw.write_bytes(first.ljust(CHUNK_BYTES, b"\0") + second.ljust(CHUNK_BYTES, b"\0"))
    found, cut = read_raw(raw)
    assert [e["k"] for e in found] == ["a", "b"]
    assert cut == 1


def test_names_with_quotes_stay_valid_json(tmp_path: Path) -> None:
    log = EventLog(tmp_path, Threads())
    thread = threading.Thread(target=lambda: log.emit("x"), name='a "quoted"\nname\\')
    thread.start()
    thread.join()
    log.close()
    assert events(tmp_path)[0]["th"] == 'a "quoted"\nname\\'
