"""What a bisection of lock strategies says in the end, with the counts behind every figure."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.analysis.belief import Opinion
from harness.analysis.compare import Comparison, compare_values
from harness.analysis.intervals import failure_rate_upper
from harness.analysis.ladder import COST_ALPHA, Ladder, Standing
from harness.analysis.resample import FEWEST, median_interval
from harness.core.schedulespec import PORTFOLIO

Verdict = Literal["unsafe", "safe", "undecided", "incomplete"]

NOTHING_TO_FIX = "nothing to fix"
NONE_SAFE = "no strategy here is safe"
_SETTINGS = ("", *PORTFOLIO)


@dataclass(frozen=True)
class Entry:
    """One strategy. `trials` and `failures`: under `schedule`, on which the verdict rests ("": the scenarios' own);
    `schedules` has the counts of each, which are never added up.

    `certified`: fresh trials without a failure, in the scenario that has fewest. `implied_by`: the strategy above it
    whose failure makes this one unsafe, "" where it failed itself. `plan_trials`: those that the hazards' plans took,
    `plan_failures`: how many of these plans showed a failure, in their order or beside it; both are in no other count.
    `chance_unsafe` is a belief, no result. Medians in seconds and real tokens a second, of the first scenario's good
    trials; intervals from six of them on.
    """

    lock: str
    verdict: Verdict
    trials: int
    failures: int
    failure_rate_upper: float
    certified: int
    schedule: str
    startup_s: float | None
    tokens_per_s: float | None
    wait_s: float | None
    startup_interval: tuple[float, float] | None
    tokens_interval: tuple[float, float] | None
    witness: Mapping[str, Any] | None
    implied_by: str
    schedules: Mapping[str, Mapping[str, int]]
    plans: Mapping[str, str]
    chance_unsafe: float | None
    reason: str
    plan_trials: int = 0
    plan_failures: int = 0


@dataclass(frozen=True)
class Answer:
    """`answer`: the cheapest strategy that was certified, None without one. `open`: what is not settled, a line each.

    `cheapest`: whether every cheaper one is known to be unsafe. `cost`: what the answer costs against the cheapest other
    strategy that was measured, in words; empty when too little was.
    """

    answer: str | None
    verdict: Verdict
    conclusion: str
    cheapest: bool
    ladder: tuple[Entry, ...]
    trials_total: int
    p_min: float
    confidence: float
    cost: Mapping[str, str]
    open: tuple[str, ...]
    stopped: str


def answer_of(
    ladder: Ladder,
    p_min: float,
    alpha: float,
    best: str | None,
    still_open: Sequence[str],
    opinion: Opinion | None,
    stopped: str,
    *,
    certified: Collection[str],
) -> Answer:
    """Put the account into words. `best`: the cheapest of the certified; `still_open`: what may be cheaper and safe."""
    unsafe = ladder.unsafe()
    entries = tuple(_entry(ladder, name, unsafe, certified, alpha, opinion) for name in ladder.order.names)
    broken = ladder.broken_context()
    verdict, conclusion = _verdict(ladder, entries, best, still_open, broken)
    left = () if broken is not None else tuple(_open_line(ladder.standings[name], name) for name in still_open)
    return Answer(
        answer=best,
        verdict=verdict,
        conclusion=conclusion,
        cheapest=best is not None and not still_open,
        ladder=entries,
        trials_total=ladder.trials,
        p_min=p_min,
        confidence=1 - alpha,
        cost={} if best is None else _cost(ladder, best),
        open=left,
        stopped=stopped,
    )


def _verdict(
    ladder: Ladder, entries: Sequence[Entry], best: str | None, still_open: Sequence[str], broken: int | None
) -> tuple[Verdict, str]:
    if broken is not None:
        return "incomplete", f"it does not run: {ladder.last_reason or 'no reason given'}"
    if best is not None:
        lowest = not ladder.order.below[best] and not ladder.unsafe()
        return "safe", NOTHING_TO_FIX if lowest else f"{best} is safe"
    if all(entry.verdict == "incomplete" for entry in entries):
        return "incomplete", next((entry.reason for entry in entries if entry.reason), "nothing ran")
    if not still_open:
        return "unsafe", NONE_SAFE
    return "undecided", "undecided"


def _entry(
    ladder: Ladder,
    name: str,
    unsafe: Mapping[str, str],
    certified: Collection[str],
    alpha: float,
    opinion: Opinion | None,
) -> Entry:
    standing = ladder.standings[name]
    schedule = _rests_on(standing)
    failures, quiet = _under(standing.failures, schedule), _under(standing.quiet, schedule)
    fresh = [max((n for (at, _), n in standing.fresh.items() if at == c), default=0) for c in range(ladder.contexts)]
    verdict: Verdict = "undecided"
    if name in unsafe:
        verdict = "unsafe"
    elif name in certified:
        verdict = "safe"
    elif ladder.cannot_run(name):
        verdict = "incomplete"
    return Entry(
        lock=name,
        verdict=verdict,
        trials=failures + quiet,
        failures=failures,
        failure_rate_upper=failure_rate_upper(failures, failures + quiet, 1 - alpha),
        certified=min(fresh, default=0),
        schedule=schedule,
        startup_s=_median(standing.startup_s),
        tokens_per_s=_median(standing.tokens_per_s),
        wait_s=_median(standing.wait_s),
        startup_interval=_interval(standing.startup_s),
        tokens_interval=_interval(standing.tokens_per_s),
        witness=standing.witness,
        implied_by="" if unsafe.get(name, name) == name else unsafe[name],
        schedules=_schedules(standing),
        plans={hazard: result.ending for hazard, result in standing.plans.items()},
        chance_unsafe=None if opinion is None or name in unsafe else round(opinion.unsafe[name], 4),
        reason=standing.reason,
        plan_trials=sum(result.trials for result in standing.plans.values()) + sum(standing.unanswered.values()),
        plan_failures=sum(result.failed for result in standing.plans.values()),
    )


def _schedules(standing: Standing) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for counts, failed in ((standing.failures, True), (standing.quiet, False)):
        for (_, schedule), count in counts.items():
            entry = found.setdefault(schedule, {"trials": 0, "failures": 0})
            entry["trials"] += count
            entry["failures"] += count * failed
    return found


def _rests_on(standing: Standing) -> str:
    """The schedule with most failures; without any, of the certification; else the one with most trials. Of equals the
    scenarios' own, then the first of the portfolio."""
    for counts in (standing.failures, standing.fresh, standing.quiet):
        if counts:
            return max(sorted({schedule for _, schedule in counts}, key=_place), key=lambda one: _under(counts, one))
    return ""


def _place(schedule: str) -> tuple[int, str]:
    setting = schedule.rpartition(":")[2]
    return _SETTINGS.index(setting) if setting in _SETTINGS else len(_SETTINGS), schedule


def _under(counts: Mapping[tuple[int, str], int], schedule: str) -> int:
    return sum(count for (_, under), count in counts.items() if under == schedule)


def _open_line(standing: Standing, name: str) -> str:
    schedule = _rests_on(standing)
    quiet = _under(standing.quiet, schedule)
    if not quiet:
        return f"{name}: tried by plans alone" if standing.plans or standing.unanswered else f"{name}: not tried"
    under = f" under {schedule}" if schedule else ""
    return f"{name}: 0/{quiet} failed{under} (at most {100 * failure_rate_upper(0, quiet):.0f} %)"


def _cost(ladder: Ladder, best: str) -> dict[str, str]:
    """The answer against the first in cost that was measured as well."""
    mine = ladder.standings[best]
    for name in ladder.order.names:
        other = ladder.standings[name]
        if name != best and min(len(other.startup_s), len(mine.startup_s)) >= FEWEST:
            before, after = ladder.costs(name, best)
            steady = compare_values(before.tokens_per_s, after.tokens_per_s, better="higher", alpha=COST_ALPHA)
            start = compare_values(before.startup_s, after.startup_s, better="lower", alpha=COST_ALPHA)
            return {"against": name, "tokens_per_s": _change(steady), "startup_s": _change(start)}
    return {}


def _change(found: Comparison) -> str:
    return f"{found}, ratio {found.ratio}" if found.ratio is not None else str(found)


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    found = median_interval(values)
    return None if found is None or found.low is None or found.high is None else (found.low, found.high)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
