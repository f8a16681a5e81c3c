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
SEVERAL = "several schedules"
_SETTINGS = ("", *PORTFOLIO)


@dataclass(frozen=True)
class Entry:
    """One strategy. `trials` and `failures`: under `schedule`, on which the verdict rests ("": the scenarios' own);
    `schedules` has the counts of each, which are never added up. `failure_rate_upper`: in the scenario of which least is known,
    for safe is said of each. Where verdicts rest on different schedules in different scenarios, `schedule` is `SEVERAL`,
    `trials` and `failures` are the sums, and `rests_on` names the schedule by scenario.

    `certified`: fresh trials without a failure, in the scenario that has fewest. `implied_by`: the strategy above it
    whose failure makes this one unsafe, "" where it failed itself. `plan_trials`: those that the hazards' plans took,
    `plan_failures`: how many of these plans showed a failure, in their order or beside it; both are in no other count.
    `chance_unsafe` is a belief, no result. Medians in seconds and real tokens a second, of the `measured` trials: good ones
    of the first scenario that ran by themselves; intervals from six of them on.
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
    rests_on: tuple[str, ...] = ()
    measured: int = 0


@dataclass(frozen=True)
class Answer:
    """`answer`: the cheapest strategy that was certified, None without one. `open`: what is not settled, a line each.

    `cheapest`: whether every cheaper one is known to be unsafe. `cost`: what the answer costs against the cheapest other
    strategy that was measured, in words; empty when too little was. `beside`: some trials ran beside others, and tell no costs.
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
    beside: bool = False


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
    cut = [name for name in _broken_off(ladder) if name not in (*unsafe, *certified)]
    left = () if broken is not None else tuple(_open_line(ladder, name, alpha) for name in (*still_open, *cut))
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
        beside=ladder.beside,
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
    if not (still_open or _broken_off(ladder)):
        return "unsafe", NONE_SAFE
    return "undecided", "undecided"


def _broken_off(ladder: Ladder) -> list[str]:
    """Strategies whose certification had begun when their trials began to say nothing."""
    standings = ladder.standings.items()
    return [name for name, one in standings if one.mute and not (one.failed or one.skipped) and ladder.cannot_run(name)]


def _entry(
    ladder: Ladder,
    name: str,
    unsafe: Mapping[str, str],
    certified: Collection[str],
    alpha: float,
    opinion: Opinion | None,
) -> Entry:
    standing = ladder.standings[name]
    rest = _Rest.of(ladder, name)
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
        trials=rest.failures + rest.quiet,
        failures=rest.failures,
        failure_rate_upper=rest.upper(alpha),
        certified=min(fresh, default=0),
        schedule=rest.schedule,
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
        rests_on=rest.schedules if rest.schedule == SEVERAL else (),
        measured=standing.measured,
    )


@dataclass(frozen=True)
class _Rest:
    """On what a strategy's verdict rests, by scenario: the schedule, and (failures, quiet trials) under it."""

    schedules: tuple[str, ...]
    counts: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, ladder: Ladder, name: str) -> _Rest:
        standing = ladder.standings[name]
        common = _rests_on(standing)
        schedules = tuple(_rests_on(standing, context) or common for context in range(ladder.contexts))
        if not _certified_apart(standing):
            schedules = (common,) * ladder.contexts
        at = tuple(enumerate(schedules))
        return cls(schedules, tuple((standing.failures.get(key, 0), standing.quiet.get(key, 0)) for key in at))

    @property
    def schedule(self) -> str:
        return self.schedules[0] if len(set(self.schedules)) == 1 else SEVERAL

    @property
    def failures(self) -> int:
        return sum(failures for failures, _ in self.counts)

    @property
    def quiet(self) -> int:
        return sum(quiet for _, quiet in self.counts)

    def upper(self, alpha: float) -> float:
        return max(failure_rate_upper(failures, failures + quiet, 1 - alpha) for failures, quiet in self.counts)


def _certified_apart(standing: Standing) -> bool:
    """Whether its certification was held under different schedules in different scenarios."""
    return not standing.failures and len({schedule for _, schedule in standing.fresh}) > 1


def _schedules(standing: Standing) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for counts, failed in ((standing.failures, True), (standing.quiet, False)):
        for (_, schedule), count in counts.items():
            entry = found.setdefault(schedule, {"trials": 0, "failures": 0})
            entry["trials"] += count
            entry["failures"] += count * failed
    return found


def _rests_on(standing: Standing, context: int | None = None) -> str:
    """The schedule with most failures; without any, of the certification; else the one with most trials. Of equals the
    scenarios' own, then the first of the portfolio. `context`: in this scenario; None: in all."""
    for every in (standing.failures, standing.fresh, standing.quiet):
        counts = {at: count for at, count in every.items() if context in (None, at[0])}
        if counts:
            found = sorted({schedule for _, schedule in counts}, key=_place)
            return max(found, key=lambda one: sum(count for (_, under), count in counts.items() if under == one))
    return ""


def _place(schedule: str) -> tuple[int, str]:
    setting = schedule.rpartition(":")[2]
    return _SETTINGS.index(setting) if setting in _SETTINGS else len(_SETTINGS), schedule


def _open_line(ladder: Ladder, name: str, alpha: float) -> str:
    standing, rest = ladder.standings[name], _Rest.of(ladder, name)
    if not rest.quiet:
        return f"{name}: tried by plans alone" if standing.plans or standing.unanswered else f"{name}: not tried"
    under = f" under {rest.schedule}" if rest.schedule else ""
    silent = f", then its trials said nothing: {standing.reason}" if name in _broken_off(ladder) else ""
    return f"{name}: 0/{rest.quiet} failed{under} (at most {100 * rest.upper(alpha):.0f} %){silent}"


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
