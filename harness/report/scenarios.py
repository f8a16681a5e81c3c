"""Scenarios as a report shows them: a cell of the grid and a line of the table each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.intervals import trials_for_safe
from harness.analysis.summary import ScenarioSummary
from harness.core.matrix import Judgement
from harness.core.outcome import OK, SKIPPED
from harness.report import wording
from harness.report.answer import state
from harness.report.rundata import RunData
from harness.report.text import one_line

MARKS = {"unsafe": "✗", "safe": "✓", "undecided": "?", "incomplete": "…", "skipped": "–", "notrun": "·"}
"""State of a scenario → its mark."""

WORDS = {
    "unsafe": ("unsafe", "a trial failed"),
    "safe": ("safe", f"{trials_for_safe()} trials or more, none failed"),
    "undecided": ("undecided", "none failed, too few trials"),
    "incomplete": ("incomplete", "no trial tells anything"),
    "skipped": ("skipped", "cannot run here"),
    "notrun": ("not run", "no trial yet"),
}
"""State of a scenario → its name, and what it means."""

DENSE_PROBE = "dense"
LONGEST_REASON = 300


@dataclass(frozen=True)
class ScenarioView:
    """One scenario. Counts and measurements are texts; `count` is `3/5 (15–95 %)`, or "" where nothing was counted."""

    anchor: str
    state: str
    mark: str
    word: str
    name: str
    id: str
    count: str
    labels: tuple[tuple[str, int], ...]
    fx: str
    dense: str
    compiles: str
    startup: str
    rate: str
    reason: str
    judged: tuple[Judgement, ...]
    command: str

    @property
    def as_expected(self) -> bool:
        """Whether no expectation is broken and no failure unexpected."""
        return all(judgement.kind == "met" for judgement in self.judged)


def scenario_views(data: RunData) -> list[ScenarioView]:
    """Every scenario of a run, also those that did not run."""
    views = [_view(data, item, number) for number, item in enumerate(data.summary.scenarios)]
    return views + [_not_run(data, name, len(views) + number) for number, name in enumerate(data.not_run)]


def most_telling(views: Sequence[ScenarioView], most: int) -> list[ScenarioView]:
    """At most so many, in their order: what failed or surprised goes before what did not."""
    if len(views) <= most:
        return list(views)
    ranked = sorted(views, key=lambda view: (view.as_expected, view.state != "unsafe", view.state == "notrun"))
    kept = {view.id for view in ranked[:most]}
    return [view for view in views if view.id in kept]


def _view(data: RunData, item: ScenarioSummary, number: int) -> ScenarioView:
    found = state(item)
    return ScenarioView(
        anchor=f"s{number}",
        state=found,
        mark=MARKS[found],
        word=WORDS[found][0],
        name=data.names[item.id],
        id=item.id,
        count=wording.rates(item),
        labels=tuple((label, count) for label, count in item.outcomes.items() if label not in (OK, SKIPPED)),
        fx=_count(item, item.fx_errors),
        dense=_count(item, item.dense_calls, DENSE_PROBE),
        compiles=_count(item, item.compiles, "compiles"),
        startup=wording.number(item.startup_s),
        rate=wording.number(item.tokens_per_s),
        reason=one_line(item.reason, LONGEST_REASON),
        judged=tuple(
            Judgement(one.kind, one_line(one.text, LONGEST_REASON)) for one in data.judgements.get(item.id, ())
        ),
        command=data.command(item.id),
    )


def _not_run(data: RunData, scenario_id: str, number: int) -> ScenarioView:
    none = wording.UNICODE.none
    return ScenarioView(
        anchor=f"s{number}",
        state="notrun",
        mark=MARKS["notrun"],
        word=WORDS["notrun"][0],
        name=data.names[scenario_id],
        id=scenario_id,
        count="",
        labels=(),
        **dict.fromkeys(("fx", "dense", "compiles", "startup", "rate"), none),
        reason="",
        judged=(),
        command=data.command(scenario_id),
    )


def _count(item: ScenarioSummary, count: int, probe: str = "") -> str:
    """Where nothing could look, or no trial came to its end, nothing seen is not zero."""
    if not item.conclusive and not count:
        return wording.UNICODE.none
    if not count and probe in item.unavailable:
        return "n/a"
    return f"{count:,}"
