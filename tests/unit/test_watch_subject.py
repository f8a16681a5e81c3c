"""Parts of a watch inside the program: imports that are waited for, errors that pass by, regions, stillness."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import harness
from harness.subject.watch import endings, syscalls
from harness.subject.watch.imports import AfterImport
from harness.subject.watch.process import MOST_COLLISIONS, Watched
from harness.subject.watch.regions import Regions
from harness.subject.watch.settings import Settings
from harness.subject.watch.stillness import Stillness, waits_outside
from harness.subject.watch.threads import WatchedThreads

WAIT_S = 20.0


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(Settings(tmp_path, tmp_path, None, False, 30.0, False), tmp_path)
    yield made
    made.stop()


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AfterImport]:
    monkeypatch.syspath_prepend(str(tmp_path))
    hooks = AfterImport()
    hooks.install()
    yield hooks
    sys.meta_path.remove(hooks)  # type: ignore[arg-type]


def test_a_module_is_answered_once_it_is_whole_and_is_what_it_would_be(after: AfterImport, tmp_path: Path) -> None:
    (tmp_path / "watch_late.py").write_text("value = 1\n")
    seen = []
    after.at("watch_late", lambda: seen.append(sys.modules["watch_late"].value))
    assert seen == []
    import watch_late  # type: ignore[import-not-found]

    assert seen == [1]
    assert "exec_module" not in vars(watch_late.__spec__.loader)
    assert watch_late.__loader__ is watch_late.__spec__.loader
    del sys.modules["watch_late"]


def test_a_module_that_fails_is_waited_for_again(after: AfterImport, tmp_path: Path) -> None:
    (tmp_path / "watch_failing.py").write_text("import sys\nif not hasattr(sys, 'watch_ok'):\n    raise OSError('no')\n")
    seen: list[int] = []
    after.at("watch_failing", lambda: seen.append(1))
    with pytest.raises(OSError, match="no"):
        __import__("watch_failing")
    assert seen == []
    sys.watch_ok = True  # type: ignore[attr-defined]
    __import__("watch_failing")
    assert seen == [1]
    del sys.modules["watch_failing"], sys.watch_ok  # type: ignore[attr-defined]


def test_a_module_that_is_there_is_answered_at_once(after: AfterImport) -> None:
    seen: list[int] = []
    after.at("json", lambda: seen.append(1))
    assert seen == [1]


def test_a_missing_module_stays_missing(after: AfterImport) -> None:
    after.at("watch_nowhere", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="watch_nowhere"):
        __import__("watch_nowhere")


def test_regions_are_nothing_where_nobody_watches(watched: Watched) -> None:
    assert harness.region("forward") is harness.region("backward", "other")
    with harness.region("forward"):
        pass
    harness.watch_regions(Regions(watched))
    try:
        with harness.region('odd "name"', "trainer"):
            assert watched.threads.current().region == "odd 'name'"
            assert watched.threads.current().worker == "trainer"
        assert watched.threads.current().worker == "MainThread"
    finally:
        harness.watch_regions(None)
    assert watched.threads.sums["MainThread"].regions["odd 'name'"][0] == 1


def test_region_names_do_not_grow_without_end(watched: Watched) -> None:
    regions = Regions(watched)
    for number in range(3000):
        with regions(f"step {number}", f"worker {number}"):
            pass
    assert len(watched.threads.sums["MainThread"].regions) <= 101


def test_an_error_that_leaves_a_region_is_recorded_if_it_is_torchs(watched: Watched) -> None:
    regions = Regions(watched)
    for error in (RuntimeError("CUDA error: unspecified launch failure"), ValueError("the program's own"), StopIteration()):
        with pytest.raises(type(error)), regions("outer", ""), regions("inner", ""):
            raise error
    (record,) = watched.trial.errors
    assert (record.label, record.region, record.worker) == ("cuda_fault", "inner", "MainThread")


def test_an_exception_whose_text_raises_is_no_error_of_ours(watched: Watched) -> None:
    class Odd(RuntimeError):
        def __str__(self) -> str:
            raise OSError("no text")

    watched.caught(Odd(), "thread")
    assert "errors" not in watched.status
    assert [error["message"] for error in watched.document()["errors"]] == ["<no text: Odd.__str__ raised OSError>"]


def test_collisions_are_counted_beyond_those_that_are_kept(watched: Watched) -> None:
    tracer = {"thread": "tracer", "worker": "tracer", "region": "", "stack": "…"}
    for _ in range(MOST_COLLISIONS + 30):
        watched.collision(watched.threads.current(), "stack", [tracer])
    document = watched.document()
    assert document["fx_errors"] == MOST_COLLISIONS + 30
    assert len(document["errors"]) == MOST_COLLISIONS
    assert document["errors_dropped"] == 30
    assert document["outcomes"] == ["fx_error"]


def test_the_account_is_whole_json_while_threads_add_to_it(watched: Watched) -> None:
    regions = Regions(watched)
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with regions(f"r{number % 90}", ""):
                watched.finding("state_leak", "text", key=f"{number % 150}")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            watched.write()
            assert json.loads((watched.folder / "result.json").read_text())["schema"] == 1
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
    assert not (watched.folder / "unwritten.txt").exists()


def test_a_folder_that_is_gone_does_not_end_the_program(watched: Watched) -> None:
    watched.folder = watched.folder / "gone"
    watched.ending("exited")


def test_who_was_and_who_lives_under_one_ident() -> None:
    threads = WatchedThreads()
    seen: list[int] = []

    def work() -> None:
        seen.append(threads.current().ident)

    first = threading.Thread(target=work, name="first")
    first.start()
    first.join(WAIT_S)
    assert threads.label_of(seen[0]) == "first"
    threads.by_ident.clear()
    threads.thread_ended(seen[0], "first")
    assert threads.label_of(seen[0]) == "first"
    assert threads.label_of(threading.get_ident()) == "MainThread"
    assert threads.label_of(1) == ""


def test_exceptions_of_threads_are_seen_and_the_programs_hook_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "_make_invoke_excepthook", threading._make_invoke_excepthook)  # type: ignore[attr-defined]
    seen: list[tuple[str, str]] = []
    hooked: list[str] = []
    assert endings.see_threads(lambda error, where: seen.append((repr(error), where))) == "ok"
    monkeypatch.setattr(threading, "excepthook", lambda args: hooked.append(repr(args.exc_value)))

    def fail(error: BaseException) -> None:
        raise error

    for error in (ValueError("x"), SystemExit()):
        thread = threading.Thread(target=fail, args=(error,))
        thread.start()
        thread.join(WAIT_S)
    assert seen == [("ValueError('x')", "thread")]
    assert hooked == ["ValueError('x')", "SystemExit()"]


def _machinery(file: str) -> bool:
    return file.endswith("threading.py")


def _native_id(ident: int) -> int:
    return next((thread.native_id or 0 for thread in threading.enumerate() if thread.ident == ident), 0)


class _Parked:
    """A thread that does one thing until it is told to go."""

    def __init__(self, how: str) -> None:
        self.go, self.round = threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self.lock.acquire()
        work = {"waits": self._wait, "polls": self._poll, "blocks": self.lock.acquire, "loops": self._loop}[how]
        self.thread = threading.Thread(target=work)
        self.thread.start()

    def _wait(self) -> None:
        self.go.wait(WAIT_S)

    def _poll(self) -> None:
        while not self.go.wait(0.001):
            pass

    def _loop(self) -> None:
        while not self.go.is_set():
            time.sleep(0.01)  # nearly always here
            self.round.set()

    def __enter__(self) -> _Parked:
        return self

    @property
    def ident(self) -> int:
        assert self.thread.ident is not None
        return self.thread.ident

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.lock.release()
        self.thread.join(WAIT_S)


@pytest.mark.parametrize(("how", "still"), [("waits", True), ("polls", True), ("blocks", True), ("loops", False)])
def test_a_wait_does_not_move_though_it_polls_and_a_loop_does_though_it_is_always_in_one_call(how: str, still: bool) -> None:
    stillness = Stillness(_machinery, _native_id, ask_after_s=0.02)
    deadline = time.monotonic() + WAIT_S
    now = longest = 0.0  # by a clock of the test's own
    with _Parked(how) as parked:
        while longest < 0.3 and (still or now < 0.8):
            assert time.monotonic() < deadline
            if not still:
                parked.round.clear()
                assert parked.round.wait(WAIT_S)
            now += 0.02
            longest = max(longest, now - stillness.look(now, own=threading.get_ident()).get(parked.ident, now))
            time.sleep(0)  # lets it come to where it stays
    assert (longest >= 0.3) == still, longest


def test_what_is_waited_for_outside_is_told_from_what_is_inside() -> None:
    peer, own = os.pipe()

    def listens() -> None:
        select.select([peer], [], [], WAIT_S)

    listener = threading.Thread(target=listens)
    listener.start()
    deadline = time.monotonic() + WAIT_S
    assert listener.ident is not None
    try:
        while not waits_outside([listener.ident], _native_id):  # it is about to
            assert time.monotonic() < deadline
    finally:
        os.close(own)  # a peer that has gone ends the wait
        listener.join(WAIT_S)
        os.close(peer)
    with _Parked("blocks") as parked:
        assert not waits_outside([parked.ident], _native_id)


def _thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def pipes() -> Iterator[Callable[[], tuple[int, int]]]:
    """Pipes, closed at the end."""
    made: list[int] = []

    def new() -> tuple[int, int]:
        made.extend(os.pipe())
        return made[-2], made[-1]

    yield new
    for end in made:
        with contextlib.suppress(OSError):
            os.close(end)


def test_the_kernel_tells_what_a_thread_waits_for(pipes: Callable[[], tuple[int, int]]) -> None:
    """A read of a pipe by whether somebody else has its other end."""
    own, to_own = pipes()
    others, to_others = pipes()
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=to_others)
    os.close(to_others)
    over = threading.Event()
    works: list[tuple[Callable[[], object], bool]] = [
        (lambda: os.read(own, 1), False),
        (lambda: os.read(others, 1), True),
        (lambda: over.wait(WAIT_S), False),
        (lambda: select.select([own], [], [], WAIT_S), True),
    ]
    threads = [_thread(work) for work, _ in works]
    try:
        wanted = [told for _, told in works]
        deadline = time.monotonic() + WAIT_S
        while [syscalls.outside(thread.native_id or 0) for thread in threads] != wanted:  # each is about to
            if syscalls.outside(threading.get_native_id()) is None and not Path("/proc/self/syscall").exists():
                pytest.skip("this kernel does not say in which call a thread is")
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        over.set()
        os.write(to_own, b"xx")
        assert child.stdin is not None
        child.stdin.write(b"x")
        child.stdin.close()
        child.wait(WAIT_S)
        for thread in threads:
            thread.join(WAIT_S)
    assert syscalls.outside(0) is None


def test_who_has_moved_since_the_look_is_not_there_any_more() -> None:
    stillness = Stillness(_machinery, _native_id)
    with _Parked("waits") as parked:
        deadline = time.monotonic() + WAIT_S
        while True:
            stillness.look(0.0, own=threading.get_ident())
            if parked.ident in stillness._places and stillness.there([parked.ident]):
                break
            assert time.monotonic() < deadline
    assert not stillness.there([parked.ident]), "it has ended"


def test_time_in_which_nobody_looked_is_no_time_of_standing_still() -> None:
    """The process was stopped, or the machine asleep."""
    stillness = Stillness(_machinery, _native_id, late_s=2.0)
    with _Parked("waits") as parked:
        deadline = time.monotonic() + WAIT_S
        began = 0.0
        while True:
            before, began = began, stillness.look(1.0, own=-1).get(parked.ident, 0.0)
            if before == began == 1.0 and stillness.there([parked.ident]):
                break
            assert time.monotonic() < deadline
            stillness._places.clear()
        assert stillness.look(2.5, own=-1)[parked.ident] == 1.0
        assert stillness.look(62.5, own=-1)[parked.ident] == 61.0
