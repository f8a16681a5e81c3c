"""The schedules of a trial, by the axis `schedule`. A new one is a file here and a line in `REGISTRY`."""

from __future__ import annotations

import importlib

from harness.core.schedulespec import parse_schedule

from .base import Schedule, Setting

REGISTRY: dict[str, str] = {
    "none": "none",
    "delays": "delays",
    "pct": "pct",
    "directed": "directed",
    "replay": "replay",
}
"""Kind → module of this package, which has `make(spec, setting) -> Schedule | None`."""


def make_schedule(text: str, setting: Setting) -> Schedule | None:
    """The schedule that `text` names; None for `none`. Raises UserError for a bad name, plan or recording."""
    spec = parse_schedule(text)
    module = importlib.import_module(f"{__name__}.{REGISTRY[spec.kind]}")
    made: Schedule | None = module.make(spec, setting)
    return made
