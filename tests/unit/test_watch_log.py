"""The bounded event log of a watched program."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.eventfile import CHUNK_BYTES, read_raw
from harness.subject.watch.log import WatchLog
from harness.subject.watch.threads import OTHERS, WatchedThreads, fit

WAIT_S = 20.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WatchLog]:
    made = WatchLog(tmp_path, WatchedThreads(), max_bytes=64 * CHUNK_BYTES)
    yield made
    made.stop()


def kinds(folder: Path) -> list[str]:
    events, cut = read_raw(folder / "events.bin")
    assert cut == 0
    return [event["k"] for event in events]


def steady(log: WatchLog, count: int) -> None:
    for _ in range(count):
        log.emit("engine.enter")


def on_thread(work: threading.Thread) -> None:
    work.start()
    work.join(WAIT_S)
    assert not work.is_alive()


@pytest.mark.parametrize("into", [0, 30, 60, 90, 120])
def test_what_is_rare_stays_with_its_surroundings_whatever_comes_after(log: WatchLog, tmp_path: Path, into: int) -> None:
    """Wherever in a chunk (of some 140 events) it falls: `into` events after the chunk has begun."""
    number = 0

    def beat() -> None:
        nonlocal number
        log.emit("region.enter", f',"r":"{number:06}"')
        number += 1

    for _ in range(3_000):
        beat()
    writer = log._writers.writer
    assert writer is not None
    chunk = writer.chunk
    while writer.chunk == chunk:
        beat()
    for _ in range(into):
        beat()
    at = number
    log.emit("dense.call")
    for _ in range(60_000):
        beat()
    events, _ = read_raw(tmp_path / "events.bin")
    kept = {int(event["r"]) for event in events if "r" in event}
    assert [event["k"] for event in events].count("dense.call") == 1
    assert set(range(at - 100, at + 100)) <= kept
    assert len(kept) < 10_000  # and it is not that everything stays


def test_nothing_grows_and_what_was_written_over_is_counted(log: WatchLog, tmp_path: Path) -> None:
    steady(log, 60_000)
    events, _ = read_raw(tmp_path / "events.bin")
    assert (tmp_path / "events.bin").stat().st_size == 64 * CHUNK_BYTES
    assert len(events) + log.written_over == 60_000
    assert log.every > 1
    assert log.dropped == {}


def test_the_last_events_of_a_thread_are_there(log: WatchLog, tmp_path: Path) -> None:
    for number in range(30_000):
        log.emit("region.enter", f',"r":"r{number}"')
    events, _ = read_raw(tmp_path / "events.bin")
    assert [event["r"] for event in events[-100:]] == [f"r{number}" for number in range(29_900, 30_000)]


def test_a_sample_is_spread_over_the_run(log: WatchLog, tmp_path: Path) -> None:
    for number in range(100_000):
        log.emit("region.enter", f',"r":"{number}"')
    kept = sorted(int(event["r"]) for event in read_raw(tmp_path / "events.bin")[0])
    quarters = [sum(low <= number < low + 25_000 for number in kept) for low in range(0, 100_000, 25_000)]
    assert min(quarters) > 100


def test_the_first_and_the_latest_unusual_windows_stay(log: WatchLog, tmp_path: Path) -> None:
    for number in range(40_000):
        log.emit("compile.start", f',"what":"{number}"')
    numbers = [int(event["what"]) for event in read_raw(tmp_path / "events.bin")[0]]
    assert numbers[:1000] == list(range(1000))
    assert numbers[-1000:] == list(range(39_000, 40_000))
    assert log.windows_lost > 0


def test_threads_that_end_give_their_chunks_back(log: WatchLog, tmp_path: Path) -> None:
    for number in range(300):  # five times as many as there are chunks
        on_thread(threading.Thread(target=steady, args=(log, 3), name=f"request-{number}"))
    gc.collect()
    assert log.dropped == {}
    log.emit("compile.start")
    assert kinds(tmp_path)[-1] == "compile.start"


def test_what_a_short_thread_saw_that_was_unusual_outlives_it(log: WatchLog, tmp_path: Path) -> None:
    on_thread(threading.Thread(target=log.emit, args=("dense.call",)))
    steady(log, 100_000)
    assert kinds(tmp_path).count("dense.call") == 1


def test_more_threads_at_a_time_than_chunks_is_no_error(tmp_path: Path) -> None:
    log = WatchLog(tmp_path, WatchedThreads(), max_bytes=4 * CHUNK_BYTES)
    go = threading.Event()

    def work() -> None:
        log.emit("engine.enter")
        go.wait(WAIT_S)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert log.dropped["engine.enter"] > 0
    assert log.dropped["engine.enter"] + log.written_over + kinds(tmp_path).count("engine.enter") == 8
    log.stop()


def test_a_mark_keeps_a_chunk_of_steady_events(log: WatchLog, tmp_path: Path) -> None:
    log.emit("region.enter", ',"r":"long"')
    log.mark()
    for _ in range(100_000):
        log.emit("engine.enter")
    assert any(event.get("r") == "long" for event in read_raw(tmp_path / "events.bin")[0])


def test_names_of_threads_are_fit_for_an_event(log: WatchLog, tmp_path: Path) -> None:
    on_thread(threading.Thread(target=log.emit, args=("dense.call",), name='odd "name"\n\\ \ud800'))
    (event,) = read_raw(tmp_path / "events.bin")[0]
    assert event["w"] == "odd 'name''' '"
    assert fit("x" * 1000) == "x" * 100


def test_names_do_not_stay_apart_without_end() -> None:
    threads = WatchedThreads()
    for number in range(1000):
        threads.sums_of(threads.worker_name(f"request-{number}"))
    assert len(threads.sums) == 201
    assert "request-N" in threads.sums
    for letter in range(1000):
        threads.sums_of(threads.worker_name(chr(0x4E00 + letter)))
    assert len(threads.sums) <= 402
    assert OTHERS in threads.sums


def test_tasks_of_the_engine_are_forgotten_in_time() -> None:
    threads = WatchedThreads()
    for task in range(20_000):
        threads.tag_task(task, "trainer", "cuda:0")
    assert len(threads._tasks) <= 4096
    assert threads._tasks[19_999] == "trainer"
