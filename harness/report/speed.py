"""Start-up and throughput by lock strategy, everything else being equal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.summary import ScenarioSummary
from harness.core.axes import Value
from harness.report.gather import Measures
from harness.report.wording import number

STRATEGY = "lock"


@dataclass(frozen=True)
class Measure:
    """Median, smallest and largest of `n` trials as texts, and the same as percentages of the longest bar."""

    n: int
    median: str
    spread: str
    bar: str
    low: str
    high: str


@dataclass(frozen=True)
class SpeedRow:
    """One strategy. A measure is None where nothing was measured."""

    strategy: str
    anchor: str
    startup: Measure | None
    rate: Measure | None


@dataclass(frozen=True)
class SpeedGroup:
    """The strategies that were tried with the same values of all other axes."""

    title: str
    rows: tuple[SpeedRow, ...]


def speed_groups(
    summaries: Sequence[ScenarioSummary],
    measures: Mapping[str, Measures],
    others: Sequence[str],
    anchors: Mapping[str, str],
) -> list[SpeedGroup]:
    """One group for each combination of the axes `others`; scenarios without any measurement are left out.

    Bars are to scale within a group.
    """
    groups: dict[tuple[Value, ...], list[ScenarioSummary]] = {}
    for item in summaries:
        found = measures.get(item.id)
        if found and (found.startup_s or found.tokens_per_s):
            groups.setdefault(tuple(item.scenario[axis] for axis in others), []).append(item)
    result = []
    for values, items in groups.items():
        startup = max((max(measures[item.id].startup_s, default=0.0) for item in items), default=0.0)
        rate = max((max(measures[item.id].tokens_per_s, default=0.0) for item in items), default=0.0)
        rows = tuple(
            SpeedRow(
                str(item.scenario[STRATEGY]),
                anchors.get(item.id, ""),
                _measure(measures[item.id].startup_s, startup),
                _measure(measures[item.id].tokens_per_s, rate),
            )
            for item in items
        )
        title = ", ".join(f"{axis}={value}" for axis, value in zip(others, values, strict=True))
        result.append(SpeedGroup(title, rows))
    return result


def _measure(values: Sequence[float], longest: float) -> Measure | None:
    if not values:
        return None
    median, low, high = statistics.median(values), min(values), max(values)
    spread = f"{number(low)} to {number(high)}" if number(low) != number(high) else ""
    bar, start, end = (f"{100 * value / longest if longest else 0:.1f}" for value in (median, low, high))
    return Measure(len(values), number(median), spread, bar, start, end)
