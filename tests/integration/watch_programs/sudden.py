"""Ends suddenly: `_exit`, `exec`, `abort`, `segv`, `kill`, `term`, `wait` (for a signal)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

how = sys.argv[1]
if how == "_exit":
    os._exit(9)
elif how == "exec":
    os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.exit(4)"])
elif how == "abort":
    os.abort()
elif how == "segv":
    ctypes.string_at(0)
elif how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "term":
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
elif how == "wait":
    print("ready", flush=True)
    time.sleep(60)
