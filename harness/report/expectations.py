"""How a run stands to what its matrix expects, as a report shows it: by scenario, what needs looking at first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.judging import KINDS, Kind, untried
from harness.core.errors import UserError
from harness.report.rundata import RunData
from harness.report.scenarios import ScenarioView
from harness.report.text import one_line
from harness.report.wording import plural

MOST_ITEMS = 300
LONGEST_TEXT = 500

MARKS: dict[Kind, str] = {"broken": "✗", "unexpected": "!", "improved": "↑", "missing": "…", "flaky": "~", "met": "✓"}
MEANINGS: dict[Kind, str] = {
    "broken": "an expectation did not hold",
    "unexpected": "a failure that nothing permits",
    "improved": "an expected failure was not seen; the trials exclude the rate that is stated, and no lower one",
    "missing": "too few trials to judge, or none",
    "flaky": "as expected, in some trials and not in others",
    "met": "as expected, in all trials alike",
}


@dataclass(frozen=True)
class Item:
    """One scenario against one expectation. `anchor`: of its line in the page, "" where the page does not list it."""

    kind: Kind
    name: str
    anchor: str
    text: str


@dataclass(frozen=True)
class Group:
    """All of one kind. `scenarios` counts all, `items` are those that are listed, `more` what is not."""

    kind: Kind
    mark: str
    meaning: str
    scenarios: int
    items: tuple[Item, ...]
    more: int


@dataclass(frozen=True)
class Expectations:
    """How a run stands to the expectations of its matrix.

    `stated` is how many there are; `unjudged` says why nothing was held against them, or is empty; `untried` are those
    that speak of no scenario here.
    """

    stated: int
    unjudged: str
    groups: tuple[Group, ...]
    untried: tuple[str, ...]

    @property
    def not_met(self) -> tuple[Item, ...]:
        """What breaks an expectation, or is expected by none."""
        return tuple(item for kind in ("broken", "unexpected") for item in self.of(kind))

    def of(self, kind: str) -> tuple[Item, ...]:
        """The listed items of a kind."""
        return next((group.items for group in self.groups if group.kind == kind), ())

    def scenarios(self, kind: str) -> int:
        """How many scenarios stand so to an expectation."""
        return next((group.scenarios for group in self.groups if group.kind == kind), 0)


def expectations_of(data: RunData, views: Sequence[ScenarioView]) -> Expectations:
    """The standings of a run, with the places of the scenarios that the page lists."""
    anchors = {view.id: view.anchor for view in views}
    groups = []
    for kind in KINDS:
        found = [standing for standing in data.standings if standing.kind == kind]
        items = tuple(
            Item(
                kind,
                data.names.get(one.scenario_id, one.scenario_id),
                anchors.get(one.scenario_id, ""),
                one_line(one.text, LONGEST_TEXT),
            )
            for one in found[:MOST_ITEMS]
        )
        if items:
            scenarios = len({standing.scenario_id for standing in found})
            groups.append(Group(kind, MARKS[kind], MEANINGS[kind], scenarios, items, len(found) - len(items)))
    return Expectations(
        len(data.matrix.expectations) if data.matrix else 0,
        one_line(data.unjudged, LONGEST_TEXT),
        tuple(groups),
        _untried(data),
    )


def _untried(data: RunData) -> tuple[str, ...]:
    if data.matrix is None or data.unjudged:
        return ()
    try:
        return tuple(one_line(str(one), LONGEST_TEXT) for one in untried(data.matrix, data.torch)[:MOST_ITEMS])
    except UserError:  # a torch whose version is no version; that is said where nothing could be judged
        return ()


def judgement(found: Expectations) -> str:
    """What stands beside the answer."""
    broken, unexpected, improved = (found.scenarios(kind) for kind in ("broken", "unexpected", "improved"))
    parts = [f"{plural(broken, 'scenario')} {'breaks' if broken == 1 else 'break'} an expectation"] if broken else []
    parts += [f"{plural(unexpected, 'scenario')} failed in a way that nothing permits"] if unexpected else []
    said = f"Not as expected: {'; '.join(parts)}." if parts else ""
    if not parts and (found.scenarios("met") or found.scenarios("flaky")):
        said = f"Nothing broke an expectation ({counts(found)})."
    if improved and parts:
        said += f" Improved: in {plural(improved, 'scenario')} an expected failure was not seen."
    elif improved and not said:
        said = f"Improved: in {plural(improved, 'scenario')} an expected failure was not seen."
    return said


def counts(found: Expectations) -> str:
    """`2 broken, 1 improved, 7 met`: scenarios by how they stand."""
    return ", ".join(f"{group.scenarios:,} {group.kind}" for group in found.groups)
