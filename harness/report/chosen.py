"""Which trials a page shows whole: of each scenario the first of every way to fail, and the first that ended well."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.control.request import Row
from harness.core.outcome import FAILURES, OK, SKIPPED

MOST_A_SCENARIO = 4
MOST_ROWS = 600
MOST_TEXT = 24_000_000
"""Characters of stacks and messages that are held while the rows pass."""

MOST_OTHER = 100_000
"""Characters of what else of a row has no limit of its own: `_OPEN_ENDED`, which is left out where there are more."""

_OPEN_ENDED = ("schedule", "last_events", "problems", "workers")
_OF_WORKERS = ("role", "steps_ok")


@dataclass
class Seen:
    """A scenario's trials in file order: their ids and outcomes. `labels` numbers the sets of outcomes."""

    ids: list[str] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=list)


class Chooser:
    """Sees every row once. `kept` are the rows that may be shown whole, in the order of their trials."""

    def __init__(self) -> None:
        self.kept: list[Row] = []
        self.seen: dict[str, Seen] = {}
        self.labels: dict[tuple[str, ...], int] = {}
        self._ways: dict[str, set[tuple[str, ...]]] = {}
        self._texts: dict[str, str] = {}
        self._room = MOST_TEXT

    def add(self, row: Row) -> None:
        """One row, which must be sound."""
        scenario = row["scenario_id"]
        if row["outcome"] == SKIPPED:
            return
        seen = self.seen.setdefault(scenario, Seen())
        labels = tuple(dict.fromkeys(row["outcomes"]))
        seen.ids.append(row["trial"])
        seen.outcomes.append(self.labels.setdefault(labels, len(self.labels)))
        way = (*labels, *sorted({error["fingerprint"] for error in row["errors"] if not error["consequence"]}))
        ways = self._ways.setdefault(scenario, set())
        if way not in ways and len(ways) < MOST_A_SCENARIO and len(self.kept) < MOST_ROWS:
            ways.add(way)
            self._keep(row)

    def _keep(self, row: Row) -> None:
        """Equal stacks are held once. Where there is no room for its stacks, a row is shown by its log alone."""
        errors = []
        for error in row["errors"]:
            tracers = [{**tracer, "stack": self._shared(tracer["stack"])} for tracer in error["tracers"]]
            errors.append({**error, "traceback": self._shared(error["traceback"]), "tracers": tracers})
        workers = {name: {key: one.get(key) for key in _OF_WORKERS} for name, one in row["workers"].items()}
        kept = {**row, "errors": errors, "workers": workers}
        if len(repr([kept[name] for name in _OPEN_ENDED])) > MOST_OTHER:
            kept.update(schedule={}, last_events=[], problems=[], workers={})
        self.kept.append(kept)

    def _shared(self, text: str) -> str:
        known = self._texts.get(text)
        if known is not None:
            return known
        if len(text) > self._room:
            return ""
        self._room -= len(text)
        return self._texts.setdefault(text, text)


def by_use(rows: list[Row]) -> list[Row]:
    """Those to be shown first in front: each scenario's first failure, then what ended well, then further failures."""
    first: set[str] = set()
    ranked = []
    for place, row in enumerate(rows):
        failed = any(label in FAILURES for label in row["outcomes"])
        leads = failed and row["scenario_id"] not in first
        if leads:
            first.add(row["scenario_id"])
        ranked.append((0 if leads else 1 if row["outcome"] == OK else 2, place, row))
    return [row for _, _, row in sorted(ranked, key=lambda one: one[:2])]
