"""Its own signal handlers, excepthooks and atexit; a thread that fails, then a main thread that fails."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading


def on_signal(number: int, _frame: object) -> None:
    print("handled", signal.Signals(number).name, flush=True)


def on_error(kind: type[BaseException], error: BaseException, _tb: object) -> None:
    print("excepthook", kind.__name__, error, flush=True)


def on_thread_error(args: threading.ExceptHookArgs) -> None:
    print("thread hook", args.exc_type.__name__, args.exc_value, flush=True)


def fail() -> None:
    raise ValueError("in a thread")


for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, on_signal)
sys.excepthook = on_error
threading.excepthook = on_thread_error
atexit.register(print, "atexit", flush=True)
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
    os.kill(os.getpid(), number)
thread = threading.Thread(target=fail, name="failing")
thread.start()
thread.join()
raise KeyError("in main")
