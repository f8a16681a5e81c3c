from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from types import FrameType, ModuleType, SimpleNamespace

import pytest
import torch
import torch._dynamo
import torch._inductor.compile_fx as compile_fx
from internals_support import WAIT_S, Recorder, clean_dynamo, in_thread, installed
from torch._dynamo import convert_frame
from torch._inductor.utils import BoxedBool

from harness.torch_internals.compile_lock import CompileLock, RecordingLock, bindings

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]

HELD_ONCE = ["compile_lock_acquired", "compile_lock_released"]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def lock(recorder: Recorder) -> Iterator[RecordingLock]:
    with installed(CompileLock(), recorder) as adapter:
        yield adapter.lock


def test_a_compile_holds_it_once_and_a_warm_call_does_not(lock: RecordingLock, recorder: Recorder) -> None:
    function = torch.compile(lambda x: x + 1, backend="eager")
    function(torch.ones(2))
    function(torch.ones(2))
    assert recorder.names() == HELD_ONCE


def test_a_reset_takes_it(lock: RecordingLock, recorder: Recorder) -> None:
    torch._dynamo.reset()
    assert recorder.names() == HELD_ONCE


def test_inductors_backward_lowering_takes_it(lock: RecordingLock, recorder: Recorder) -> None:
    owners: list[int | None] = []
    module = torch.fx.symbolic_trace(lambda x: (x + 1,))
    extra = SimpleNamespace(
        graph_id=0,
        forward_device=None,
        cudagraphs=BoxedBool(False),
        cudagraphs_bwd_override=None,
        forward_is_partitioned=SimpleNamespace(value=False),
    )
    compile_fx.compile_fx_backward(
        module, [], extra, inner_compile=lambda *args, **kwargs: owners.append(lock.owner)
    )
    assert owners == [threading.get_ident()]
    assert recorder.names() == HELD_ONCE


def test_inside_a_compile_owner_and_depth_are_known(lock: RecordingLock) -> None:
    seen: list[tuple[int | None, int]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        seen.append((lock.owner, lock.depth))
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert seen == [(threading.get_ident(), 1)]
    assert (lock.owner, lock.depth) == (None, 0)


def test_a_contended_acquire_reports_that_it_waits(lock: RecordingLock, recorder: Recorder) -> None:
    waits = threading.Event()
    recorder.on["compile_lock_wait"] = waits.set
    idents: list[int] = []

    def other() -> None:
        idents.append(threading.get_ident())
        with lock:
            pass

    thread = threading.Thread(target=other)
    with lock:
        thread.start()
        assert waits.wait(WAIT_S)
        assert lock.waiters() == (idents[0],)
        assert lock.owner == threading.get_ident()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert recorder.names(idents[0]) == ["compile_lock_wait", *HELD_ONCE]
    assert lock.waiters() == ()


def test_a_thread_can_be_stopped_before_it_tries(recorder: Recorder) -> None:
    tries: list[int | None] = []
    with installed(CompileLock(), recorder) as adapter:
        adapter.before_trying(lambda: tries.append(adapter.lock.owner))
        with adapter.lock, adapter.lock:  # the second level is no try: the thread has it
            assert in_thread(lambda: adapter.lock.acquire(blocking=False)) is False
        assert tries == [None, threading.get_ident()]

        def refuse() -> None:
            raise InterruptedError

        adapter.before_trying(refuse)
        with pytest.raises(InterruptedError):
            adapter.lock.acquire()
        assert adapter.lock.owner is None
    assert recorder.names() == HELD_ONCE


def test_it_is_reentrant_and_reports_the_outermost_hold(lock: RecordingLock, recorder: Recorder) -> None:
    with lock, lock:
        assert lock.depth == 2
        assert in_thread(lambda: lock.acquire(blocking=False)) is False
    assert lock.depth == 0
    assert recorder.names() == HELD_ONCE


def test_waiting_can_time_out(lock: RecordingLock, recorder: Recorder) -> None:
    with lock:
        assert in_thread(lambda: lock.acquire(timeout=0.01)) is False
        assert lock.waiters() == ()
        assert lock.owner == threading.get_ident()
    assert recorder.names() == ["compile_lock_acquired", "compile_lock_wait", "compile_lock_released"]


def test_releasing_what_another_holds_raises_and_changes_nothing(lock: RecordingLock) -> None:
    with lock:
        with pytest.raises(RuntimeError, match="cannot release"):
            in_thread(lock.release)
        assert (lock.owner, lock.depth) == (threading.get_ident(), 1)


@pytest.mark.parametrize("moment", ["compile_lock_acquired", "compile_lock_wait"])
def test_a_hook_that_raises_does_not_keep_the_lock(
    lock: RecordingLock, recorder: Recorder, moment: str
) -> None:
    def fail() -> None:
        raise InterruptedError(moment)

    def other() -> None:
        recorder.on[moment] = fail
        try:
            with lock:
                pass
        finally:
            recorder.on.clear()

    if moment == "compile_lock_wait":
        with lock, pytest.raises(InterruptedError, match=moment):
            in_thread(other)
    else:
        with pytest.raises(InterruptedError, match=moment):
            in_thread(other)
    assert lock.acquire(timeout=WAIT_S)
    lock.release()
    assert (lock.owner, lock.depth, lock.waiters()) == (None, 0, ())


def test_copies_of_the_name_are_found_and_put_back(recorder: Recorder) -> None:
    original = convert_frame.compile_lock
    copy = ModuleType("a_module_that_copied_the_lock")
    vars(copy)["its_name"] = original
    sys.modules[copy.__name__] = copy
    try:
        with installed(CompileLock(), recorder) as adapter:
            assert vars(copy)["its_name"] is adapter.lock
            assert convert_frame.compile_lock is adapter.lock
        assert vars(copy)["its_name"] is original
        assert convert_frame.compile_lock is original
    finally:
        del sys.modules[copy.__name__]


def test_nothing_but_modules_refers_to_the_lock() -> None:
    """The claim behind replacing module attributes: no closure, class or instance of torch keeps the lock."""
    lock = convert_frame.compile_lock
    assert [(module.__name__, name) for module, name in bindings(lock)] == [
        ("torch._dynamo.convert_frame", "compile_lock")
    ]
    ours = (RecordingLock, FrameType)  # of earlier tests, not collected yet; the frame of this test
    holders = [holder for holder in gc.get_referrers(lock) if not isinstance(holder, ours)]
    assert [holder for holder in holders if holder is not vars(convert_frame)] == []


def test_a_thread_that_kept_the_old_lock_still_excludes_others(recorder: Recorder) -> None:
    old = convert_frame.compile_lock
    with installed(CompileLock(), recorder) as adapter, old:
        assert in_thread(lambda: adapter.lock.acquire(blocking=False)) is False


def test_a_lock_that_is_no_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_frame, "compile_lock", object())
    answer = CompileLock().install(Recorder())
    assert not answer.ok
    assert "compile_lock" in answer.reason
