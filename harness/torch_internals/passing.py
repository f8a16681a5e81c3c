"""What adapters that exist for schedules alone have in common: they report sync points by name.

No private name is touched. These adapters are installed only where a schedule listens, so a trial without one runs torch
as it is.
"""

from __future__ import annotations

from typing import Protocol


class PassingSink(Protocol):
    """`point` as in `harness.core.points`. May hold the thread; must not raise."""

    def passing(self, point: str, info: str) -> None: ...
