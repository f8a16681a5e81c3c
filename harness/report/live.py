"""The scenarios of a run while it goes on, as a table that fits whatever height there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from harness.core.axes import AXES
from harness.core.outcome import INCOMPLETE, OK, SKIPPED, is_failure
from harness.report.names import short_name

FEWEST_ROWS = 3


@dataclass
class Standing:
    """One scenario so far. `said` counts the trials that tell something, `labels` every label but ok."""

    said: int = 0
    failed: int = 0
    labels: dict[str, int] | None = None
    touched: int = 0
    scenario: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """`2 × fx_error`."""
        return ", ".join(f"{count} × {label}" for label, count in (self.labels or {}).items())


class Standings:
    """Counts trials as they end; memory grows with scenarios."""

    def __init__(self, varying: Sequence[str] = ()) -> None:
        """`varying`: the axes that names are made of, as in the table at the end; else those that differ so far."""
        self.varying = varying
        self._found: dict[str, Standing] = {}
        self._clock = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """A trial has ended, or was skipped."""
        self._clock += 1
        found = self._found.setdefault(str(row["scenario_id"]), Standing())
        found.touched = self._clock
        found.scenario = row["scenario"]
        labels = dict.fromkeys(row["outcomes"])
        found.said += any(label not in (*INCOMPLETE, SKIPPED) for label in labels)
        found.failed += any(is_failure(label) for label in labels)
        counts = found.labels = found.labels or {}
        for label in labels:
            if label != OK:
                counts[label] = counts.get(label, 0) + 1

    def table(self, most: int) -> Table | None:
        """At most so many lines, heads and all; those that failed first, then the newest. None before the first trial."""
        rows = max(FEWEST_ROWS, most - 3)
        shown = sorted(self._found.items(), key=lambda pair: (not pair[1].failed, -pair[1].touched))[:rows]
        if not shown:
            return None
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), expand=False)
        table.add_column("scenario", no_wrap=True, overflow="ellipsis", ratio=3)
        table.add_column("failed", justify="right", no_wrap=True)
        table.add_column("seen", no_wrap=True, overflow="ellipsis", ratio=2)
        named = self.varying or _differing([found.scenario for found in self._found.values()])
        for _, found in shown:
            name = short_name(found.scenario, named)
            style = "red" if found.failed else "green" if found.said else "dim"
            seen = Text(found.text or ("ok" if found.said else ""), style="" if found.failed else "dim")
            table.add_row(Text(name), Text(f"{found.failed}/{found.said}", style=style), seen)
        more = len(self._found) - len(shown)
        if more:
            table.add_row(Text(f"and {more:,} more", style="dim"), "", "")
        return table


def _differing(scenarios: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lock, which is what is asked about, and the axes on which these scenarios differ."""
    return ["lock", *(a.name for a in AXES if a.name != "lock" and len({one[a.name] for one in scenarios}) > 1)]
