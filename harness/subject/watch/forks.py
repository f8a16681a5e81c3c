"""What Python 3.12 and newer look at when the program forks: a process of several threads is warned of it.

The watch's own thread must not make one of a program that has a single thread. Python asks the kernel for the number, so
what counts is that the thread is gone from there. 3.13 asks after its hooks for the parent have run (until a late patch
of it), and not before them: there the thread may begin again only once the fork has returned.

Beside other threads the warning is due, and the thread stays: to start one blocks signals for a moment, and a child that
ends in it wakes another thread, which then looks as if it had moved.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

COUNTED_AFTER_HOOKS = sys.version_info[:2] == (3, 13)
_TASKS = "/proc/self/task"
_GONE_WITHIN_S = 0.05
_pending: list[Any] = []  # the interpreter keeps no reference to what it is to call


def would_be_warned_of() -> bool:
    """Whether a fork now would be warned of for the sake of the watch's thread alone."""
    return sys.version_info >= (3, 12) and len(os.listdir(_TASKS)) == 2


def wait_until_gone(native_id: int) -> None:
    """Until the kernel has taken the thread off the process, which is a moment after its last line of Python."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while os.path.exists(f"{_TASKS}/{native_id}") and time.monotonic() < deadline:
        time.sleep(0.0001)


def once_returned(forking: FrameType | None, call: Callable[[], None]) -> None:
    """Call it, in the one thread there is, as soon as the fork that `forking` is calling now has returned to it."""
    import ctypes  # not before: a watched program need not have it

    place = forking.f_lasti if forking is not None else -1

    def look(_: object) -> int:
        inner: FrameType | None = sys._getframe(1)
        frame = inner
        while frame is not None and frame is not forking:  # another hook of the same fork may run yet
            frame = frame.f_back
        if frame is not None and frame is not inner and frame.f_lasti == place:
            add(callback, None)
        else:
            _pending.remove(callback)
            call()
        return 0

    add = ctypes.pythonapi.Py_AddPendingCall
    callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(look)
    _pending.append(callback)
    if add(callback, None):  # no room: then with a warning
        _pending.remove(callback)
        call()
