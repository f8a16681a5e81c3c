"""A failure of a strategy that a trial of a plan has shown, whether or not the plan's order came about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.control.reproduce import Watcher
from harness.control.request import Row
from harness.core.outcome import FAILURES


class PlanFailure:
    """The first failure of a strategy among the trials of plans that are carried out at the same time: one is enough.

    A hang is none: whoever is held for long by a plan looks like that.
    """

    def __init__(self) -> None:
        self.row: Row | None = None
        self.folder = Path()
        self.hazard = ""

    def of(self, hazard: str, ended: Callable[[Row], None]) -> Watcher:
        """To be told of this hazard's trials; `ended` is, of each."""
        return _Told(self, hazard, ended)


@dataclass(frozen=True)
class _Told:
    failure: PlanFailure
    hazard: str
    ended: Callable[[Row], None]

    def tell(self, row: Row, folder: Path) -> None:
        self.ended(row)
        if self.failure.row is None and {*row["outcomes"]} & {*FAILURES} - {"hang"}:
            self.failure.row, self.failure.folder, self.failure.hazard = row, folder, self.hazard

    @property
    def enough(self) -> bool:
        return self.failure.row is not None
