"""A thread is in a regular expression that takes for ever, and has the interpreter lock meanwhile."""

from __future__ import annotations

import re
import threading


def search() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


worker = threading.Thread(target=search, name="searcher")
worker.start()
worker.join()
