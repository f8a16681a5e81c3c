"""Where a program's errors and its end pass by, without replacing a hook that belongs to the program.

`sys.excepthook`, `threading.excepthook`, signal handlers and `faulthandler` are the program's. So: an exception that ends
the main thread is read from `sys.last_value`, which the interpreter sets whatever the hook; one that ends a thread is
seen by the function through which `threading` calls its hook; one that a future keeps, as it is handed over; one that
ends a child of `multiprocessing`, which prints it itself, as the child's name is looked up for that.
`os._exit` and `os.exec…` end a process without a word: they write the account first.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

Seen = Callable[[BaseException, str], None]
"""(exception, where it was seen: "thread", "future" or "main")."""

_EXEC = ("execv", "execve")  # the others of `os` are made of these


def see_threads(seen: Seen) -> str:
    """Tell of every exception that ends a thread; "ok", or why not."""
    make: Callable[[], Callable[[Any], None]] | None = getattr(threading, "_make_invoke_excepthook", None)
    if make is None:
        return "unavailable: this Python's threading calls its excepthook in another way"

    @functools.wraps(make)
    def _make_invoke_excepthook() -> Callable[[Any], None]:
        invoke = make()

        def invoke_excepthook(thread: Any) -> None:
            error = sys.exc_info()[1]
            if error is not None and not isinstance(error, SystemExit):
                seen(error, "thread")
            error = None  # no cycle through this frame
            invoke(thread)

        return invoke_excepthook

    threading._make_invoke_excepthook = _make_invoke_excepthook  # type: ignore[attr-defined]
    return "ok"


def see_ends(ended: Callable[[int, str], None]) -> None:
    """Tell of every thread that ends: its ident and name."""
    forget: Callable[[Any], None] | None = getattr(threading.Thread, "_delete", None)
    if forget is None:
        return  # the names of ended threads are a nicety

    @functools.wraps(forget)
    def _delete(thread: Any) -> None:
        ended(thread.ident, thread.name)
        forget(thread)

    threading.Thread._delete = _delete  # type: ignore[attr-defined]


def see_futures(seen: Seen) -> None:
    """Tell of every exception that a task leaves in a `concurrent.futures.Future`; that module is imported by now."""
    futures: Any = sys.modules["concurrent.futures._base"]
    keep = futures.Future.set_exception

    @functools.wraps(keep)
    def set_exception(future: Any, exception: BaseException | None) -> None:
        if exception is not None:
            seen(exception, "future")
        keep(future, exception)

    futures.Future.set_exception = set_exception


def see_children(seen: Seen) -> str:
    """Tell, in a child of `multiprocessing`, of the exception that ended its work; "ok", or why not.

    That module catches it, prints it under the name of the child and goes on to exit code 1, so no hook hears of it. Nothing
    is put between the child's work and that handler, for it would be a line of the traceback: the name is asked for there.
    """
    base: Any = sys.modules["multiprocessing.process"].BaseProcess
    named, start = base.__dict__.get("name"), getattr(getattr(base, "_bootstrap", None), "__code__", None)
    if not isinstance(named, property) or named.fget is None or start is None or "name" not in start.co_names:
        return "unavailable: this Python's multiprocessing tells of errors in another way"
    get: Callable[[Any], str] = named.fget

    @functools.wraps(get)
    def name(process: Any) -> str:
        if sys._getframe(1).f_code is start:
            error = sys.exc_info()[1]
            if isinstance(error, Exception):  # not a Ctrl-C, as in `last_error`
                seen(error, "main")
            error = None  # no cycle through this frame
        return get(process)

    base.name = property(name, named.fset, named.fdel, named.__doc__)
    return "ok"


def see_signals(sent: Callable[[int, str], None]) -> None:
    """Tell of every signal that `multiprocessing` sends to a child, as a pool does to its workers at its end."""
    popen: Any = sys.modules["multiprocessing.popen_fork"].Popen
    send: Callable[[Any, int], None] | None = getattr(popen, "_send_signal", None)
    if send is None:
        return  # the child's row then says that it ended without a word

    @functools.wraps(send)
    def _send_signal(child: Any, number: int) -> None:
        if child.returncode is None:
            sent(child.pid, signal.Signals(number).name)
        send(child, number)

    popen._send_signal = _send_signal


def starts_another(frame: FrameType | None) -> bool:
    """Whether the fork that `frame` called is one that `subprocess` makes for a `preexec_fn`: the child is replaced at once."""
    return frame is not None and frame.f_code.co_name == "_execute_child" and frame.f_globals.get("__name__") == "subprocess"


def see_sudden_ends(ending: Callable[[str], None]) -> None:
    """Call `ending` before `os._exit` and `os.exec…`, with what it is; both go on as ever."""
    leave = os._exit

    @functools.wraps(leave)
    def _exit(status: int) -> NoReturn:
        ending("os._exit")
        leave(status)

    _exit.__module__ = "os"  # where it is found by name, as a pickle of it asks: `multiprocessing` sends such a target
    os._exit = _exit
    for name in _EXEC:
        setattr(os, name, _telling(getattr(os, name), ending))


def _telling(replace: Callable[..., Any], ending: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(replace)
    def execute(*args: Any, **kwargs: Any) -> Any:
        ending("exec")
        return replace(*args, **kwargs)  # returns only by an exception, and the program goes on

    execute.__module__ = "os"  # likewise
    return execute


def last_error() -> BaseException | None:
    """The exception that ended the main thread; None where there was none.

    Programs set `sys.last_value`, too (pytest does at a failed test, for a debugger), and so does a prompt, which goes on.
    What ended the thread went through its outermost frame, which nobody called.
    """
    found = getattr(sys, "last_value", None)
    if not isinstance(found, Exception) or found.__traceback__ is None or hasattr(sys, "ps1"):
        return None
    return found if found.__traceback__.tb_frame.f_back is None else None
