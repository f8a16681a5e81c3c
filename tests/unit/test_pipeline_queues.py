"""The index-ordered queue: order, bound, closing, aborting, and where every item went."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from harness.pipeline.queues import OrderedQueue, QueueAborted, QueueTimeout

WAIT_S = 20.0
SHORT_S = 0.05  # long enough to be sure that a call waits; it is never waited for success


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as executor:
        yield executor


def waits(future: "Future[object]") -> bool:
    try:
        future.result(SHORT_S)
    except TimeoutError:
        return True
    return False


def test_items_come_in_the_order_of_their_index() -> None:
    queue: OrderedQueue[str] = OrderedQueue(3)
    for index in (2, 0, 1):
        assert queue.put(index, f"item {index}", WAIT_S)
    assert [queue.get(WAIT_S) for _ in range(3)] == ["item 0", "item 1", "item 2"]


def test_get_waits_for_the_next_index_though_later_ones_are_there(pool: ThreadPoolExecutor) -> None:
    queue: OrderedQueue[int] = OrderedQueue(2)
    queue.put(1, 1, WAIT_S)
    got = pool.submit(queue.get, WAIT_S)
    assert waits(got)
    queue.put(0, 0, WAIT_S)
    assert got.result(WAIT_S) == 0


def test_put_waits_while_it_is_too_far_ahead(pool: ThreadPoolExecutor) -> None:
    queue: OrderedQueue[int] = OrderedQueue(2)
    queue.put(0, 0, WAIT_S)
    third = pool.submit(queue.put, 2, 2, WAIT_S)
    assert waits(third)
    assert queue.put(1, 1, WAIT_S)  # within the bound, though the other one came first
    assert waits(third)
    assert queue.get(WAIT_S) == 0
    assert third.result(WAIT_S)


def test_timeouts() -> None:
    queue: OrderedQueue[int] = OrderedQueue(1)
    with pytest.raises(QueueTimeout, match="item 0"):
        queue.get(0.01)
    queue.put(0, 0)
    with pytest.raises(QueueTimeout, match="item 1"):
        queue.put(1, 1, 0.01)
    assert queue.counts.offered == 1  # what timed out was not handed over, and may be tried again


def test_close_lets_the_getter_drain_and_then_end(pool: ThreadPoolExecutor) -> None:
    queue: OrderedQueue[int] = OrderedQueue(4)
    queue.put(0, 0, WAIT_S)
    queue.put(2, 2, WAIT_S)  # 1 never comes: its producer has died
    queue.close()
    assert [queue.get(WAIT_S) for _ in range(3)] == [0, 2, None]
    assert queue.get(WAIT_S) is None
    empty: OrderedQueue[int] = OrderedQueue(1)
    waiting = pool.submit(empty.get, WAIT_S)
    assert waits(waiting)
    empty.close()
    assert waiting.result(WAIT_S) is None


def test_closing_for_a_dead_consumer_frees_the_producers(pool: ThreadPoolExecutor) -> None:
    queue: OrderedQueue[int] = OrderedQueue(1)
    queue.put(0, 0, WAIT_S)
    blocked = [pool.submit(queue.put, index, index, WAIT_S) for index in (1, 2)]
    assert all(map(waits, blocked))
    queue.close()
    assert [future.result(WAIT_S) for future in blocked] == [False, False]
    assert queue.put(3, 3, WAIT_S) is False
    assert queue.closed
    counts = queue.counts
    assert (counts.offered, counts.taken, counts.left) == (4, 0, 4)


@pytest.mark.parametrize("side", ["get", "put"])
def test_abort_raises_on_either_side(pool: ThreadPoolExecutor, side: str) -> None:
    queue: OrderedQueue[int] = OrderedQueue(1)
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: queue.get(WAIT_S),
        "put": lambda: queue.put(1, 1, WAIT_S),
    }
    waiting = pool.submit(calls[side])
    assert waits(waiting)
    queue.abort()
    with pytest.raises(QueueAborted):
        waiting.result(WAIT_S)
    for call in calls.values():
        with pytest.raises(QueueAborted):
            call()
    assert queue.closed


def test_an_index_is_put_once() -> None:
    queue: OrderedQueue[int] = OrderedQueue(2)
    queue.put(0, 0)
    with pytest.raises(ValueError, match="item 0 was put before"):
        queue.put(0, 0)
    queue.get(WAIT_S)
    with pytest.raises(ValueError, match="item 0 was put before"):
        queue.put(0, 0)
    assert queue.counts.offered == 1


def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        OrderedQueue(0)


@pytest.mark.parametrize("seed", range(5))
def test_many_producers_lose_nothing_and_keep_the_order(seed: int) -> None:
    """Eight producers take indices in order and put them whenever they run; the smallest queue there is."""
    items = 400
    queue: OrderedQueue[int] = OrderedQueue(1 + seed)
    numbers, mutex, chance = iter(range(items)), threading.Lock(), random.Random(seed)
    pauses = [chance.random() * 1e-4 for _ in range(items)]
    wait = threading.Event().wait

    def produce() -> None:
        while True:
            with mutex:
                index = next(numbers, None)
            if index is None:
                return
            wait(pauses[index])
            assert queue.put(index, index, WAIT_S)

    with ThreadPoolExecutor(8) as pool:
        producers = [pool.submit(produce) for _ in range(8)]
        assert [queue.get(WAIT_S) for _ in range(items)] == list(range(items))
        for producer in producers:
            producer.result(WAIT_S)
    queue.close()
    assert queue.get(WAIT_S) is None
    counts = queue.counts
    assert (counts.offered, counts.taken, counts.left) == (items, items, 0)


@pytest.mark.parametrize("stop_after", [0, 1, 37])
def test_a_consumer_that_dies_leaves_no_item_unaccounted(stop_after: int) -> None:
    items = 100
    queue: OrderedQueue[int] = OrderedQueue(3)
    with ThreadPoolExecutor(4) as pool:
        producers = [
            pool.submit(lambda first=first: [queue.put(i, i, WAIT_S) for i in range(first, items, 4)])
            for first in range(4)
        ]
        for _ in range(stop_after):
            queue.get(WAIT_S)
        queue.close()
        for producer in producers:
            producer.result(WAIT_S)
    counts = queue.counts
    assert counts.offered == items
    assert counts.taken == stop_after
    assert counts.left == items - stop_after
