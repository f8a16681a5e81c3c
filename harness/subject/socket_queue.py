"""A drafter's queue where its items come from another process: one is asked for ahead, by a thread that does only that.

The thread touches nothing of torch's: it moves bytes while the drafter computes. What is of torch (tensors, pinned memory,
which must not be had while a CUDA graph is captured) is done by the drafter's own thread as it takes an item.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import threading

from harness.pipeline.items import Item, LostItem
from harness.pipeline.queues import QueueAborted

HEADER = 8  # bytes of a frame's length, big-endian; a frame of no bytes says that there are no more items
END_S = 30.0  # the thread ends at once; if not, that is told instead of waited for


class SocketQueue:
    """The drafter's end. Holds at most one item that the drafter has not taken: asked for, on its way, or here.

    The thread begins with the first `get` and ends with `close`, `abort`, or when the other side has no more or has gone.
    """

    def __init__(self, sock: socket.socket, *, pin: bool = False) -> None:
        """`pin`: items are handed over in pinned memory."""
        self._sock = sock
        self._pin = pin
        self._changed = threading.Condition()
        self._frame: mmap.mmap | None = None  # arrived, not taken
        self._arrived = 0
        self._taken = 0
        self._over = False  # nothing more will come
        self._closed = False
        self._aborted = False
        self._error: BaseException | None = None  # what ended the thread, where nothing should have
        self._reader: threading.Thread | None = None

    def get(self) -> Item | LostItem | None:
        """The next item; None when there are no more, or the other side has gone. Raises `QueueAborted`."""
        with self._changed:
            if self._reader is None and not self._closed:
                self._reader = threading.Thread(target=self._read, name="items-ahead", daemon=True)
                self._reader.start()
            self._changed.wait_for(lambda: self._frame is not None or self._over or self._closed or self._aborted)
            data = self._take()
            if data is None and self._error is not None:
                raise self._error
        return None if data is None else self._made(data)

    def poll(self) -> Item | LostItem | None:
        """The next item if all of it is here; None otherwise. Raises `QueueAborted`."""
        with self._changed:
            data = self._take()
        return None if data is None else self._made(data)

    def get_waits(self) -> bool:
        """For the wait-for graph: the other end is in another process, so there is nobody here to wait for."""
        return False

    def close(self) -> None:
        """Nothing more is wanted; the thread has ended when this returns. Raises RuntimeError: it has not."""
        self._shut(aborted=False)
        if self._reader is not None:
            self._reader.join(END_S)
            if self._reader.is_alive():
                raise RuntimeError(f"the thread that reads items has not ended within {END_S:.0f} s")
        self._sock.close()

    def abort(self) -> None:
        """Whoever waits here stops waiting, and the thread ends. From any thread."""
        self._shut(aborted=True)

    @property
    def arrived(self) -> int:
        """Items that came, whole."""
        return self._arrived

    @property
    def unused(self) -> int:
        """Of these, those that nobody took."""
        return self._arrived - self._taken

    def _shut(self, *, aborted: bool) -> None:
        with self._changed:
            self._closed = True
            self._aborted = self._aborted or aborted
            self._changed.notify_all()
        with contextlib.suppress(OSError):  # it was shut before
            self._sock.shutdown(socket.SHUT_RDWR)  # unlike `close`, wakes the thread that reads

    def _take(self) -> mmap.mmap | None:
        if self._aborted:
            raise QueueAborted
        data, self._frame = self._frame, None
        if data is not None:
            self._taken += 1
            self._changed.notify_all()
        return data

    def _made(self, data: mmap.mmap) -> Item | LostItem:
        item = unframe(data)
        return item.pinned() if self._pin and isinstance(item, Item) else item

    # the thread

    def _read(self) -> None:
        try:
            while self._room():
                self._sock.sendall(b"?")
                size = int.from_bytes(self._exactly(memoryview(bytearray(HEADER))), "big")
                if not size:
                    return
                data = mmap.mmap(-1, size)
                with memoryview(data) as view:
                    self._exactly(view)
                with self._changed:
                    self._frame = data
                    self._arrived += 1
                    self._changed.notify_all()
        except (BrokenPipeError, ConnectionResetError, EOFError):
            return  # the other side has gone, or this one was closed: no more items, which `get` says
        except BaseException as error:  # noqa: BLE001 - raised by `get`, on the drafter's own thread
            self._error = error
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _room(self) -> bool:
        """Waits until the item before was taken; False when nothing more is wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._frame is None or self._closed)
            return not self._closed

    def _exactly(self, view: memoryview) -> memoryview:
        """Fills `view`."""
        done = 0
        while done < len(view):
            count = self._sock.recv_into(view[done:])
            if not count:
                raise EOFError
            done += count
        return view


def frame(item: Item | LostItem) -> bytes:
    """An item as bytes; a lost one is its index alone."""
    return b"L%d" % item.index if isinstance(item, LostItem) else item.to_bytes()


def unframe(data: bytearray | mmap.mmap) -> Item | LostItem:
    """What `frame` made; an item's tensors lie in `data`."""
    return LostItem(int(data[1:])) if data[:1] == b"L" else Item.from_buffer(data)
