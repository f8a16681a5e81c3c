"""A bounded queue that gives items out in the order of their index, whichever producer comes first.

Several target threads fill the queue of one drafter. A plain queue would hand items over in the order in
which the targets happen to finish, and a threaded run could no longer be held against a serial one step by
step.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class QueueAborted(Exception):
    """The run is being shut down: whoever waits at a queue or a barrier stops waiting."""


class QueueTimeout(Exception):
    """The time given to `put` or `get` is over."""


@dataclass(frozen=True)
class QueueCounts:
    """Where the items went. `offered == taken + left` holds once both sides have ended."""

    offered: int
    taken: int
    rejected: int
    held: int

    @property
    def left(self) -> int:
        """Items that were made and that nobody took: refused by a closed queue, or still lying in it."""
        return self.rejected + self.held


class OrderedQueue(Generic[T]):
    """Items by index: 0, 1, 2, … Each index is put once.

    `put` waits while its index is `capacity` or more ahead of the next one to be taken. The item that `get`
    waits for can therefore always be put, so producers that run ahead cannot lock out the one that is late.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a queue needs room for at least one item, not {capacity}")
        self.capacity = capacity
        self._items: dict[int, T] = {}
        self._next = 0
        self._closed = False
        self._aborted = False
        self._offered = 0
        self._taken = 0
        self._rejected = 0
        self._changed = threading.Condition()

    def put(self, index: int, item: T, timeout: float | None = None) -> bool:
        """Hand over item `index`; False when the queue was closed, and the item stays with nobody.

        Raises `QueueAborted`, `QueueTimeout`, and `ValueError` for an index that was put before.
        """
        with self._changed:
            free = self._changed.wait_for(
                lambda: self._aborted or self._closed or index < self._next + self.capacity, timeout
            )
            if self._aborted:
                raise QueueAborted
            if not free:
                raise QueueTimeout(f"no room for item {index} within {timeout} s")
            if self._closed:
                self._offered += 1
                self._rejected += 1
                return False
            if index < self._next or index in self._items:
                raise ValueError(f"item {index} was put before")
            self._offered += 1
            self._items[index] = item
            self._changed.notify_all()
            return True

    def get(self, timeout: float | None = None) -> T | None:
        """The next item in order; None when the queue was closed and holds nothing more.

        An index that never came is passed over once the queue is closed. Raises `QueueAborted`,
        `QueueTimeout`.
        """
        with self._changed:
            ready = self._changed.wait_for(lambda: self._aborted or self._closed or self._next in self._items, timeout)
            if self._aborted:
                raise QueueAborted
            if not ready:
                raise QueueTimeout(f"item {self._next} did not come within {timeout} s")
            if self._next not in self._items:
                if not self._items:
                    return None
                self._next = min(self._items)
            item = self._items.pop(self._next)
            self._next += 1
            self._taken += 1
            self._changed.notify_all()
            return item

    def poll(self) -> T | None:
        """The next item in order if it is there already; None otherwise. Raises `QueueAborted`."""
        with self._changed:
            if self._aborted:
                raise QueueAborted
            item = self._items.pop(self._next, None)
            if item is not None:
                self._next += 1
                self._taken += 1
                self._changed.notify_all()
            return item

    def put_waits(self, index: int) -> bool:
        """Whether `put` of that index would have to wait. Takes no lock, so it may be outdated at once."""
        return not (self._aborted or self._closed or index < self._next + self.capacity)

    def get_waits(self) -> bool:
        """Whether `get` would have to; likewise."""
        return not (self._aborted or self._closed or self._next in self._items)

    def close(self) -> None:
        """Nothing more is accepted: waiting and later `put` answer False; `get` drains what is there."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abort(self) -> None:
        """Both sides raise `QueueAborted`, now and later."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """True after `close` or `abort`: an item made from now on would not be taken."""
        with self._changed:
            return self._closed or self._aborted

    @property
    def counts(self) -> QueueCounts:
        with self._changed:
            return QueueCounts(self._offered, self._taken, self._rejected, len(self._items))
