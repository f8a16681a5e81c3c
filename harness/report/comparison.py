"""Two runs beside each other: what a comparison shows, on a page and in a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.analysis.compare import Counts
from harness.analysis.fairness import Alone, fairness
from harness.analysis.versus import FAILURES, TESTS, RunComparison, ScenarioComparison, Side, Test, compare_runs
from harness.core.errors import UserError
from harness.core.settings import parse_settings
from harness.report.facts import where
from harness.report.grid import varying
from harness.report.names import short_name
from harness.report.rundata import LONGEST_NAME, RunData
from harness.report.text import clip, one_line
from harness.report.wording import number, percent, plural

MOST_ROWS = 500
LONGEST_NOTE = 500
MOST_AT_ODDS = 5
AT_ODDS = "the ranks differ, and not in the direction that the medians show"
MARKS = {"worse": "▼", "better and worse": "▼", "better": "▲", "no change that can be told": "=", "not compared": "–"}
ORDER = tuple(MARKS)


@dataclass(frozen=True)
class Row:
    """A scenario. `tests`: measure, before → after, what is told ("" for nothing), why."""

    name: str
    anchor: str
    word: str
    mark: str
    decided_by: str
    tests: tuple[tuple[str, str, str, str], ...]
    note: str


@dataclass(frozen=True)
class Comparison:
    """The section of a page. `sentence` is the answer, `notes` what to read it with."""

    sentence: str
    method: str
    before: str
    after: str
    refused: tuple[str, ...]
    unfair: tuple[str, ...]
    asked: tuple[str, ...]
    notes: tuple[str, ...]
    rows: tuple[Row, ...]
    more: int
    alone: tuple[tuple[str, str], ...]


def compare(before: RunData, after: RunData) -> RunComparison:
    """Compare two runs that were read."""
    return compare_runs(
        _sides(before),
        _sides(after),
        fairness(
            before.environment,
            after.environment,
            (_settings(before), _settings(after)),
            (_software(before), _software(after)),
        ),
    )


def comparison_of(before: RunData, after: RunData, anchors: Mapping[str, str]) -> Comparison:
    """The section of a page; `anchors`: scenario id → where the page lists it."""
    found = compare(before, after)
    names = names_of(found)
    items = sorted(found.scenarios, key=lambda item: ORDER.index(item.word))
    fair = found.fair
    return Comparison(
        sentence=sentence(found),
        method=method(found),
        before=described(before),
        after=described(after),
        refused=() if found.scenarios else _notes(fair.refused),  # else it is in the answer
        unfair=_notes((*fair.speed, *(f"{text} (scenarios on CUDA)" for text in fair.cuda))),
        asked=_notes(fair.asked),
        notes=_notes([*notes(found), *(f"before: {note.rstrip('.')}" for note in before.source.notes)]),
        rows=tuple(
            Row(
                names[item.scenario_id],
                anchors.get(item.scenario_id, ""),
                item.word,
                MARKS[item.word],
                decided_by(item),
                tuple(
                    (test.measure, change(test, item), test.found.word if test.told else "", why(test))
                    for test in item.tests
                ),
                one_line(item.why_not, LONGEST_NOTE),
            )
            for item in items[:MOST_ROWS]
        ),
        more=max(0, len(items) - MOST_ROWS),
        alone=tuple(
            (f"only {side}", f"{names[one.scenario_id]}{_near(one)}")
            for side, ones in (("before", found.only_before), ("after", found.only_after))
            for one in ones[:MOST_ROWS]
        ),
    )


def names_of(found: RunComparison) -> dict[str, str]:
    """Scenario id → short name, over both runs."""
    values = {
        **{item.scenario_id: item.scenario for item in found.scenarios},
        **{one.scenario_id: one.scenario for one in (*found.only_before, *found.only_after)},
    }
    axes = varying(values)
    return {name: clip(short_name(axes_of, axes), LONGEST_NAME) for name, axes_of in values.items()}


def sentence(found: RunComparison) -> str:
    """The answer in one line."""
    if not found.scenarios:
        return "Nothing can be compared: the two runs have no scenario in common."
    if not found.comparable:
        return f"Nothing can be compared: {found.scenarios[0].why_not}."
    counts = {word: len(found.having(word)) for word in ORDER}
    said = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    return f"Of {plural(len(found.scenarios), 'scenario')} in both runs: {said}."


def method(found: RunComparison) -> str:
    """How it was decided."""
    if not found.family:
        return "No test could have told a difference: there are too few trials, or no failures on either side."
    return (
        f"Failures by {TESTS[FAILURES]}, throughput and start-up by a rank test (Mann-Whitney), two-sided; Holm's "
        f"correction over all {plural(found.family, 'test')} that could tell anything, so the chance of any difference "
        f"told where there is none is at most {percent(found.alpha)}."
    )


def notes(found: RunComparison) -> list[str]:
    """What the answer has to be read with."""
    said = []
    if found.too_few:
        said.append(
            f"{plural(found.too_few, 'test')} had too few trials to tell any difference; "
            f"with {found.needed} on either side the clearest one could be told"
        )
    if at_odds := [(item, test) for item in found.scenarios for test in item.tests if test.found.at_odds]:
        names = names_of(found)
        which = ", ".join(f"{test.measure} of {names[item.scenario_id]}" for item, test in at_odds[:MOST_AT_ODDS])
        more = f" and {len(at_odds) - MOST_AT_ODDS} more" if len(at_odds) > MOST_AT_ODDS else ""
        said.append(f"{AT_ODDS}, so no change is told: {which}{more}")
    if any(test.measure != FAILURES for item in found.scenarios for test in item.deciding):
        said.append(
            "the runs were not made at the same time, so a machine that was busier in one of them shows as slower"
        )
    return said


def described(data: RunData) -> str:
    """`run folder: torch 2.11.0+cpu, 2 × AMD EPYC`."""
    parts = [f"torch {data.torches}", where(data.environment)]
    return one_line(f"{data.run_dir}: {', '.join(filter(None, parts))}", LONGEST_NOTE)


def decided_by(item: ScenarioComparison) -> str:
    """`more failures: 0/20 → 9/20, Fisher's exact test, p = 0.0012`; "" where nothing is told."""
    return "; ".join(
        f"{test.found.word}: {change(test, item)}, {TESTS[test.measure]}, {p_value(test.adjusted)}"
        for test in item.deciding
    )


def change(test: Test, item: ScenarioComparison) -> str:
    """`0/20 → 9/20`, or `1434 → 1180 (× 0.82 [0.78, 0.87])`."""
    if test.measure == FAILURES:
        old, new = item.before.counts, item.after.counts
        return f"{old.failures}/{old.trials} → {new.failures}/{new.trials}"
    ratio = test.found.ratio
    if ratio is None:
        return ""
    old_values, new_values = (
        (side.startup_s if test.measure == "start-up" else side.tokens_per_s) for side in (item.before, item.after)
    )
    unit = " s" if test.measure == "start-up" else " tok/s"
    return f"{_median(old_values)} → {_median(new_values)}{unit} (× {ratio})"


def why(test: Test) -> str:
    """`p = 0.012 (corrected 0.14)`, and why a test does not count."""
    said = f"{p_value(test.found.p)} (corrected {p_value(test.adjusted).removeprefix('p ').removeprefix('= ')})"
    if test.found.at_odds:
        return f"{said}; {AT_ODDS}"
    if test.unfair:
        return one_line(f"{p_value(test.found.p)}; not fair, so not counted: {test.unfair}", LONGEST_NOTE)
    return said if test.could_tell else f"{said}; too few trials to tell"


def p_value(p: float) -> str:
    """`p = 0.012`."""
    return f"p = {p:.2g}" if p >= 0.001 else "p < 0.001"


def _sides(data: RunData) -> dict[str, Side]:
    sides = {}
    for item in data.summary.scenarios:
        if item.skipped:
            continue
        measures = data.gathered.measures.get(item.id)
        sides[item.id] = Side(
            item.scenario,
            Counts(item.failures, item.conclusive),
            tuple(measures.startup_s) if measures else (),
            tuple(measures.tokens_per_s) if measures else (),
        )
    return sides


def _settings(data: RunData) -> Mapping[str, Any] | None:
    """With the defaults, so that one who wrote a default down and one who did not are alike; of another workload as is."""
    if data.matrix is None:
        return None
    if all(scenario.workload != "dflash" for scenario in data.matrix.scenarios):
        return data.matrix.pipeline  # its keys are its own, and so are their defaults
    try:
        return dataclasses.asdict(parse_settings(data.matrix.pipeline, data.matrix.file))
    except UserError:
        return data.matrix.pipeline


def _software(data: RunData) -> list[str]:
    return [torch for torch, _ in data.gathered.software]


def _median(values: Any) -> str:
    from statistics import median

    return number(median(values))


def _near(one: Alone) -> str:
    return f" (the other run has it with {one.near}: never compared with this)" if one.near else ""


def _notes(texts: Any) -> tuple[str, ...]:
    return tuple(one_line(text, LONGEST_NOTE) for text in texts)
