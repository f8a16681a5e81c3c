"""What a run cannot tell: scenarios that did not run, trials that tell nothing, probes and comparisons that were not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.analysis.summary import ScenarioSummary
from harness.core.outcome import INCOMPLETE
from harness.report.gather import Oracle
from harness.report.rundata import RunData
from harness.report.text import one_line
from harness.report.wording import plural

MOST_REASONS = 100
MOST_NAMES = 8
LONGEST_REASON = 500


@dataclass(frozen=True)
class Reason:
    """A reason that several scenarios share."""

    text: str
    names: tuple[str, ...]
    more: int


def skipped(data: RunData) -> tuple[Reason, ...]:
    """Why scenarios cannot run here."""
    return _reasons(data, lambda item: (item.reason or "no reason given") if item.skipped else "")


def incomplete(data: RunData) -> tuple[Reason, ...]:
    """Why trials tell nothing of the subject."""
    return _reasons(data, _why_incomplete)


def no_rate(data: RunData) -> tuple[Reason, ...]:
    """Why trials that ended well have no throughput."""
    return _reasons(data, lambda item: item.no_rate)


def _why_incomplete(item: ScenarioSummary) -> str:
    silent = {label: count for label, count in item.outcomes.items() if label in INCOMPLETE}
    counts = ", ".join(f"{count:,} × {label}" for label, count in silent.items())
    return f"{counts}: {item.reason}" if counts and item.reason else counts


def _reasons(data: RunData, why: Callable[[ScenarioSummary], str]) -> tuple[Reason, ...]:
    found: dict[str, list[str]] = {}
    for item in data.summary.scenarios:
        text = one_line(why(item), LONGEST_REASON)
        if text:
            found.setdefault(text, []).append(data.names[item.id])
    return tuple(
        Reason(text, tuple(names[:MOST_NAMES]), max(0, len(names) - MOST_NAMES))
        for text, names in list(found.items())[:MOST_REASONS]
    )


def blind_probes(data: RunData) -> tuple[tuple[str, str], ...]:
    """(probe, why it could not work, and how often)."""
    found = [
        (probe, "; ".join(f"{one_line(why, LONGEST_REASON)} ({plural(n, 'trial')})" for why, n in reasons.items()))
        for probe, reasons in data.summary.unavailable.items()
    ]
    found += [(probe, f"switched off ({plural(n, 'trial')})") for probe, n in data.gathered.probes_off.items()]
    return tuple(found[:MOST_REASONS])


def oracles(data: RunData) -> tuple[tuple[str, str, Oracle], ...]:
    """(name, what its comparisons came to, the counts themselves)."""
    return tuple((name, _came_to(one), one) for name, one in data.gathered.oracles.found.items())


def _came_to(oracle: Oracle) -> str:
    within = f" ({oracle.within_noise:,} only as runs of it differ)" if oracle.within_noise else ""
    return f"{plural(oracle.agreed, 'trial')} agreed with the reference{within}, {oracle.differed:,} did not."
