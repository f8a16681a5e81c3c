"""Start-up and throughput by lock strategy, everything else being equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.resample import median_interval
from harness.analysis.summary import ScenarioSummary
from harness.core.axes import Value
from harness.report.gather import Measures
from harness.report.wording import number

STRATEGY = "lock"


MOST_DOTS = 100


@dataclass(frozen=True)
class Measure:
    """The median of `n` trials, as text, and what it is sure of: `spread` is its interval, or why it has none.

    The rest are places along the longest bar, in percent: the median, the interval's ends ("" without one), and single
    trials.
    """

    n: int
    median: str
    spread: str
    bar: str
    low: str
    high: str
    dots: tuple[str, ...]


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
    """One group for each combination of the axes `others`; scenarios without any measurement are left out, and those whose
    trials ran under several torch, which have no common one.

    Bars are to scale within a group.
    """
    groups: dict[tuple[Value, ...], list[ScenarioSummary]] = {}
    for item in summaries:
        found = measures.get(item.id)
        if found and not item.by_torch and (found.startup_s or found.tokens_per_s):
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
    found = median_interval(values)
    if found is None:
        return None

    def place(value: float) -> str:
        return f"{100 * value / longest if longest else 0:.1f}"

    low, high, spread = "", "", ""
    if found.low is not None and found.high is not None:
        low, high = place(found.low), place(found.high)
        spread = f"{number(found.low)} to {number(found.high)}"
    elif number(min(values)) != number(max(values)):
        spread = f"no interval; {number(min(values))} to {number(max(values))} seen"
    step = max(1, len(values) // MOST_DOTS)
    dots = tuple(dict.fromkeys(place(value) for value in sorted(values)[::step]))
    return Measure(len(values), number(found.value), spread, place(found.value), low, high, dots)
