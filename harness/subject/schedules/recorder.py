"""Keeps the order of points as threads pass them, and writes it when the trial ends."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.points import CONTENTION
from harness.core.recording import Passed, Recording

from ..identity import Thread
from .base import Setting
from .crew import MAIN, seat_name

MOST = 200_000  # events


class Recorder:
    """`list.append` is atomic, so there is no lock: the order of appends is the order of the recording."""

    def __init__(self, setting: Setting) -> None:
        self.events: list[Passed] = []
        self.workers: dict[str, str] = {}
        self.dropped = 0
        self._facts = dict(setting.facts)
        self._folder: Path = setting.folder

    def add(self, thread: Thread, point: str, info: str) -> None:
        """`thread` passes now. The main thread runs alone before the workers start, and contention comes by chance."""
        if thread.name == MAIN or point in CONTENTION:
            return
        if len(self.events) < MOST:
            self.events.append(Passed(seat_name(thread), point, info))
        else:
            self.dropped += 1

    def write(self, **head: Any) -> str:
        """The file's name; "" when the recording is too long to be of use."""
        if self.dropped:
            return ""
        torch = sys.modules.get("torch")
        versions: Mapping[str, Any] = {
            "torch": "" if torch is None else str(torch.__version__),
            "python": platform.python_version(),
        }
        document = {**versions, **self._facts, "workers": self.workers, **head}
        return Recording(tuple(self.events), document).write(self._folder).name
