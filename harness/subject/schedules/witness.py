"""What a schedule saw, for people: who passed which point when, and where in the source."""

from __future__ import annotations

import sys
from pathlib import PurePath
from types import FrameType
from typing import Any

from ..identity import Thread
from .crew import Arrival, seat_name

_OURS = ("harness/subject/", "harness/torch_internals/", "harness/locks.py", "harness/core/")
_MOST = 400


class Witness:
    """The points that a plan constrains, in the order in which they were passed. Bounded."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.dropped = 0

    def add(self, at: Arrival, thread: Thread, now_ns: int, **more: Any) -> None:
        """Called on the thread that passes."""
        if len(self.lines) >= _MOST:
            self.dropped += 1
            return
        torch, user = source_positions(sys._getframe(1))
        self.lines.append(
            {
                "n": len(self.lines) + 1,
                "t": now_ns,
                "seat": seat_name(thread),
                "thread": thread.name,
                "worker": thread.worker,
                "region": "/".join(thread.regions),
                "point": at.point,
                "info": at.info,
                "torch": torch,
                "source": user,
                **more,
            }
        )


def source_positions(frame: FrameType | None) -> tuple[str, str]:
    """Innermost position inside torch (`_dynamo/eval_frame.py:1120 compile_wrapper`) and outside of it; "" for none."""
    torch = user = ""
    while frame is not None and not user:
        path = frame.f_code.co_filename.replace("\\", "/")
        if not _is_ours(path):
            parts = PurePath(path).parts
            if "torch" in parts:
                inside = "/".join(parts[len(parts) - parts[::-1].index("torch") :])
                torch = torch or f"torch/{inside}:{frame.f_lineno} {frame.f_code.co_name}"
            elif not path.startswith("<") and parts[-1] not in ("threading.py", "contextlib.py"):
                user = f"{'/'.join(parts[-3:]).lstrip('/')}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return torch, user


def _is_ours(path: str) -> bool:
    """The harness's own frames say nothing; its small programs are the workload, though."""
    return any(piece in path for piece in _OURS) and "/programs/" not in path
