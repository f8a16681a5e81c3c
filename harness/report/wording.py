"""How numbers and verdicts are put into words, the same in every report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.analysis.intervals import failure_rate_interval, failure_rate_lower, failure_rate_upper
from harness.analysis.summary import ScenarioSummary


@dataclass(frozen=True)
class Signs:
    """What this output can show."""

    le: str = "≤"
    ge: str = "≥"
    none: str = "–"
    met: str = "✓"
    broken: str = "✗"


UNICODE = Signs()
ASCII = Signs("<=", ">=", "-", "+", "x")


def percent(rate: float) -> str:
    """`45 %`; one decimal below ten."""
    value = 100 * rate
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.1f} %"


def verdict(summary: ScenarioSummary, signs: Signs = UNICODE) -> str:
    """`undecided 0/5 (≤ 45 %)`: how often it can fail at most; once one failed, how often it does at least."""
    if summary.skipped:
        return "skipped"
    if not summary.conclusive:
        return summary.verdict
    parts = summary.by_torch or (summary,)  # under several torch never one count: `undecided 0/30 + 0/30 (≤ 9.5 %)`
    bound = f"{signs.le} {percent(summary.failure_rate_upper)}"
    if summary.failures:
        bound = f"{signs.ge} {percent(max(failure_rate_lower(part.failures, part.conclusive) for part in parts))}"
    return f"{summary.verdict} {' + '.join(f'{part.failures}/{part.conclusive}' for part in parts)} ({bound})"


def rates(summary: ScenarioSummary) -> str:
    """The `rate` of a scenario; under several torch of each: `0/30 (≤ 9.5 %) under torch 2.11.0; …`."""
    if not summary.by_torch:
        return rate(summary.failures, summary.conclusive)
    return "; ".join(f"{rate(part.failures, part.conclusive)}{_speed(part)} {part.under}" for part in summary.by_torch)


def _speed(part: ScenarioSummary) -> str:
    """`, start 2.3 s, 1434 tok/s`, as far as it was measured."""
    start = "" if part.startup_s is None else f", start {number(part.startup_s)} s"
    return start + ("" if part.tokens_per_s is None else f", {number(part.tokens_per_s)} tok/s")


def rate(failures: int, conclusive: int) -> str:
    """`3/5 (15–95 %)`: the count with the exact interval of the rate at 95 %; one-sided, `0/5 (≤ 45 %)`, at either end.

    "" where nothing was counted.
    """
    if not conclusive:
        return ""
    found = failure_rate_interval(failures, conclusive)
    if not failures:
        between = f"≤ {percent(failure_rate_upper(failures, conclusive))}"
    elif failures == conclusive:
        between = f"≥ {percent(failure_rate_lower(failures, conclusive))}"
    else:
        between = f"{percent(found.low).removesuffix(' %')}–{percent(found.high)}"
    return f"{failures:,}/{conclusive:,} ({between})"


def number(value: float | None, signs: Signs = UNICODE) -> str:
    """A measured value in at most five characters, up to a million."""
    if value is None:
        return signs.none
    if value >= 99_999.5:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"


def duration(seconds: float) -> str:
    """`8 s`, `3 min`, `2 h 05 min`: as exact as a guess deserves."""
    if seconds < 90:
        return f"{max(1, math.ceil(seconds))} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def whereabouts(part: Mapping[str, Any], doing: str = "") -> str:
    """`drafter-1 (thread t) in mask` of an error or of a tracer, `thread MainThread in the set-up`; `doing` stands before
    the place.
    """
    worker, thread, region, stage = (str(part.get(key) or "") for key in ("worker", "thread", "region", "stage"))
    who = f"{worker} (thread {thread or '?'})" if worker else f"thread {thread or '?'}"
    where = f"in {region}" if region else f"in the {stage}" if stage else "outside of any region"
    return " ".join(word for word in (who, doing, where) if word)


def plural(count: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
