"""No schedule: threads run as the operating system and the interpreter let them."""

from __future__ import annotations

from harness.core.schedulespec import ScheduleSpec

from .base import Schedule, Setting


def make(spec: ScheduleSpec, setting: Setting) -> Schedule | None:
    """None: nobody listens to the points."""
    del spec, setting
    return None
