"""Taking the next item early, as drafters do on CUDA: switched on here on the CPU, where nothing else of it differs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pipeline_support import attention_on_cpu, context, serial, threaded

from harness.pipeline.queues import OrderedQueue
from harness.pipeline.transfer import Transfer


@pytest.fixture(autouse=True, scope="module")
def flex() -> Iterator[None]:
    with attention_on_cpu():
        yield


@pytest.fixture(autouse=True)
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transfer, "ahead", property(lambda self: True))


def test_items_taken_early_give_the_losses_of_the_serial_run_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    early = 0
    poll = OrderedQueue.poll

    def counted(queue: OrderedQueue[object]) -> object:
        nonlocal early
        found = poll(queue)
        early += found is not None
        return found

    monkeypatch.setattr(OrderedQueue, "poll", counted)
    run = threaded(context(queue_depth=4, loss_chunk=0), steps=6)
    assert early, "no item was there early, so nothing was tried"
    assert run.problems == []
    assert run.ctx.failures == []
    assert run.losses() == serial(context(loss_chunk=0), steps=6).losses()


def test_an_item_in_hand_when_a_step_fails_is_accounted_for() -> None:
    run = threaded(context({("drafter-0", "backward"): {2}}, queue_depth=4), steps=6)
    assert run.problems == []
    assert len(run.ctx.failures) == 1


def test_a_run_that_is_shut_down_has_no_failed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is aborted between a drafter's optimizer step and its look at the next item."""
    poll = OrderedQueue.poll

    def aborted(queue: OrderedQueue[object]) -> object:
        queue.abort()
        return poll(queue)

    monkeypatch.setattr(OrderedQueue, "poll", aborted)
    run = threaded(context(), steps=3)
    assert run.ctx.failures == []
    assert len(run.losses()["drafter-0"]) == 1, "the step that was done before counts"
