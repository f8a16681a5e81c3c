"""A drafter's queue in a process of its own: one item is asked for ahead, and no more; every wait has an end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from harness.pipeline.items import Item, LostItem
from harness.pipeline.queues import QueueAborted
from harness.subject.socket_queue import HEADER, SocketQueue, frame

WAIT_S = 20.0


@dataclass
class Ends:
    """Both ends, and the threads of a test that may wait."""

    queue: SocketQueue
    feeder: socket.socket

    def asked(self) -> bool:
        """Waits for a question; False at the other side's end."""
        return bool(self.feeder.recv(1))

    def send(self, item: Item | LostItem | None) -> None:
        data = b"" if item is None else frame(item)
        self.feeder.sendall(len(data).to_bytes(HEADER, "big") + data)

    def wait(self, condition: Callable[[SocketQueue], bool]) -> None:
        with self.queue._changed:
            assert self.queue._changed.wait_for(lambda: condition(self.queue), WAIT_S)

    def no_question(self) -> bool:
        """Whether none lies there now."""
        self.feeder.setblocking(False)
        try:
            return not self.feeder.recv(1)
        except BlockingIOError:
            return True
        finally:
            self.feeder.settimeout(WAIT_S)


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(WAIT_S)
    found = Ends(SocketQueue(ours), theirs)
    yield found
    theirs.close()
    found.queue.close()
    assert not [thread.name for thread in threading.enumerate() if thread is found.queue._reader]


def in_thread(body: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    told: list[Any] = []

    def run() -> None:
        try:
            told.append(body())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            told.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, told


def item(index: int) -> Item:
    return Item(
        index=index,
        features=torch.full((1, 3, 4), float(index)),
        last_hidden=torch.zeros(1, 3, 2),
        ids=torch.zeros(1, 3, dtype=torch.int64),
        loss_mask=torch.ones(1, 3, dtype=torch.bool),
        document_ids=torch.zeros(1, 3, dtype=torch.int64),
        positions=torch.zeros(1, 3, dtype=torch.int64),
        lengths=((3,),),
        tokens=3,
    )


def first_taken(ends: Ends) -> None:
    """Item 0 was handed over by `get`, and item 1 asked for."""
    thread, told = in_thread(ends.queue.get)
    assert ends.asked()
    ends.send(item(0))
    thread.join(WAIT_S)
    assert told[0].index == 0
    assert ends.asked(), "the next item is asked for while the drafter computes"


def test_the_next_item_is_asked_for_ahead_and_poll_hands_it_over(ends: Ends) -> None:
    first_taken(ends)
    assert ends.queue.poll() is None, "it has not come"
    ends.send(item(1))
    ends.wait(lambda queue: queue.arrived == 2)
    found = ends.queue.poll()
    assert isinstance(found, Item)
    assert found.index == 1
    assert torch.equal(found.features, item(1).features)


def test_no_more_than_one_item_is_ahead(ends: Ends) -> None:
    first_taken(ends)
    ends.send(item(1))
    ends.wait(lambda queue: queue.arrived == 2)
    assert ends.no_question(), "one that nobody has taken lies here already"
    assert ends.queue.unused == 1
    assert ends.queue.poll() is not None
    assert ends.asked()
    assert ends.queue.unused == 0


def test_half_an_item_is_not_handed_over(ends: Ends) -> None:
    first_taken(ends)
    data = frame(item(1))
    ends.feeder.sendall(len(data).to_bytes(HEADER, "big") + data[:-1])
    assert ends.queue.poll() is None
    thread, told = in_thread(ends.queue.get)
    ends.feeder.sendall(data[-1:])
    thread.join(WAIT_S)
    assert told[0].index == 1


def test_the_end_comes_after_the_item_before_it_and_stays(ends: Ends) -> None:
    first_taken(ends)
    ends.send(LostItem(1))
    ends.wait(lambda queue: queue.arrived == 2)
    assert ends.queue.get() == LostItem(1)
    assert ends.asked()
    ends.send(None)
    assert (ends.queue.get(), ends.queue.poll(), ends.queue.get()) == (None, None, None)


def test_the_other_sides_death_is_the_end(ends: Ends) -> None:
    first_taken(ends)
    ends.feeder.sendall(b"\0\0")  # in the middle of a frame
    ends.feeder.close()
    thread, told = in_thread(ends.queue.get)
    thread.join(WAIT_S)
    assert told == [None]


@pytest.mark.parametrize("arrived", [False, True])
def test_close_ends_the_thread_wherever_it_is(ends: Ends, arrived: bool) -> None:
    first_taken(ends)
    if arrived:  # it waits for room; else for the socket
        ends.send(item(1))
        ends.wait(lambda queue: queue.arrived == 2)
    thread, told = in_thread(ends.queue.close)
    thread.join(WAIT_S)
    assert told == [None]
    assert ends.queue._reader is not None
    assert not ends.queue._reader.is_alive()
    assert ends.queue.unused == int(arrived), "for the account: it came, and nobody took it"
    assert not ends.asked()


def test_abort_ends_a_wait_and_the_thread(ends: Ends) -> None:
    first_taken(ends)
    thread, told = in_thread(ends.queue.get)
    ends.queue.abort()
    thread.join(WAIT_S)
    assert isinstance(told[0], QueueAborted)
    with pytest.raises(QueueAborted):
        ends.queue.poll()
    assert ends.queue._reader is not None
    ends.queue._reader.join(WAIT_S)
    assert not ends.queue._reader.is_alive()


def test_what_ends_the_thread_is_raised_where_the_item_was_wanted(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("planted")

    first_taken(ends)
    monkeypatch.setattr("harness.subject.socket_queue.mmap.mmap", full)
    ends.send(item(1))
    thread, told = in_thread(ends.queue.get)
    thread.join(WAIT_S)
    assert isinstance(told[0], MemoryError)


def test_where_items_are_pinned_it_is_done_by_who_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    by: list[threading.Thread] = []

    def pinned(self: Item) -> Item:
        by.append(threading.current_thread())
        return self

    monkeypatch.setattr(Item, "pinned", pinned)
    ours, theirs = socket.socketpair()
    theirs.settimeout(WAIT_S)
    ends = Ends(SocketQueue(ours, pin=True), theirs)
    first_taken(ends)
    assert len(by) == 1
    ends.send(item(1))
    ends.wait(lambda queue: queue.arrived == 2)
    assert len(by) == 1, "not by the thread that reads: a CUDA graph may be being captured"
    assert ends.queue.poll() is not None
    assert by[1] is threading.current_thread()
    theirs.close()
    ends.queue.close()
