"""Says how it finds itself, and ends with the exit code that it is told."""

from __future__ import annotations

import json
import os
import sys
import threading

found = {
    "argv": sys.argv,
    "name": __name__,
    "path": os.environ.get("PYTHONPATH"),
    "variable": os.environ.get("HARNESS_WATCH"),
    "first": sys.path[0],
    "cwd": os.getcwd(),
    "threads": threading.active_count(),
    "hooks": sys.excepthook is sys.__excepthook__ and threading.excepthook is threading.__excepthook__,
    "tty": [os.isatty(fd) for fd in (0, 1, 2)],
    "custom": getattr(sys, "custom_of_the_program", None),
}
print(json.dumps(found), flush=True)
if "--read" in sys.argv:
    print(sys.stdin.read(), end="", flush=True)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
