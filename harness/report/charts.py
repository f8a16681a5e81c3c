"""What a run's measurements look like: step times, memory, work by thread, locks. View models without markup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.control.request import Row
from harness.core.axes import Value
from harness.report.bars import Bar, bar
from harness.report.plot import Plot, plot
from harness.report.spans import COMPILE_LOCK, REGION, WAIT, Story
from harness.report.speed import STRATEGY
from harness.report.tallies import NO_WORKER, LockTime, Tallies, Work
from harness.report.text import clip
from harness.report.warm_charts import GIB, LONGEST_NAME, Device, Warm, device_rows, idle_rows, warm_rows
from harness.report.wording import number

MOST_PLOTS = 6
MOST_WORKERS = 12
MOST_ROWS = 60
MOST_IDLE = 20


@dataclass(frozen=True)
class Matrix:
    """Bars by strategy and thread."""

    what: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Bar, ...]], ...]
    empty: bool


@dataclass(frozen=True)
class LockRow:
    """One lock under one strategy, means of so many trials."""

    strategy: str
    lock: str
    trials: int
    waited: Bar
    held: Bar
    waits: str


@dataclass(frozen=True)
class Peak:
    """A device's largest peaks under one strategy."""

    strategy: str
    device: str
    allocated: Bar
    reserved: Bar


@dataclass(frozen=True)
class Charts:
    """All of a run. What has no data is empty; `left_out`: of which table how many rows are not shown."""

    steps: tuple[Plot, ...]
    memory: tuple[Plot, ...]
    peaks: tuple[Peak, ...]
    work: tuple[Matrix, ...]
    locks: tuple[LockRow, ...]
    warm: tuple[Warm, ...]
    idle: tuple[tuple[str, str], ...]
    devices: tuple[Device, ...]
    left_out: Mapping[str, int]


def charts_of(
    tallies: Mapping[str, Tallies],
    values: Mapping[str, Mapping[str, Value]],
    stories: Sequence[tuple[Row, Story]],
    names: Mapping[str, str],
) -> Charts:
    """`tallies` and `values` by scenario id; `stories`: of trials that ended well; `names`: scenario id → short name."""
    kind_of = kinds_of(values.values())
    by_lock: dict[str, list[Tallies]] = {}
    for scenario, found in tallies.items():
        if found.trials and scenario in values:
            by_lock.setdefault(kind_of(values[scenario]), []).append(found)
    shown = _one_a_strategy(stories)
    tables: dict[str, tuple[Any, ...]] = {
        "peaks": _peaks(by_lock),
        "locks": _locks(by_lock, _compile_lock(stories, kind_of)),
        "warm": warm_rows(by_lock),
        "idle": idle_rows(tallies, values, names),
        "devices": device_rows(by_lock),
    }
    most = {name: MOST_IDLE if name == "idle" else MOST_ROWS for name in tables}
    return Charts(
        _steps(shown, names),
        _memory(shown, names),
        work=tuple(_work(by_lock, what) for what in ("compiles", "dense_calls")),
        left_out={
            "work": max(0, len(by_lock) - MOST_ROWS),
            **{name: max(0, len(rows) - most[name]) for name, rows in tables.items()},
        },
        **{name: rows[: most[name]] for name, rows in tables.items()},
    )


KindOf = Callable[[Mapping[str, Value]], str]

_APART = ("cache", "schedule")
"""Axes of which different values are never added up: what a trial with warm caches takes says nothing of one with cold ones."""


def kinds_of(scenarios: Iterable[Mapping[str, Value]]) -> KindOf:
    """How scenarios are told apart where trials are added up: by their strategy, and of `_APART` by what varies here."""
    seen = list(scenarios)
    varying = [axis for axis in _APART if len({str(one[axis]) for one in seen}) > 1]

    def kind_of(scenario: Mapping[str, Value]) -> str:
        parts = [f"{axis}={_without_seed(str(scenario[axis]))}" for axis in varying]
        return clip(", ".join([str(scenario[STRATEGY]), *parts]), LONGEST_NAME)

    return kind_of


def _without_seed(schedule: str) -> str:
    """`delays:*:dense` of `delays:7:dense`: schedules that differ by their seed are of one kind."""
    kind, *parts = schedule.split(":")
    return ":".join([kind, *("*" if n == 0 and part.isdigit() else part for n, part in enumerate(parts))])


def _one_a_strategy(stories: Sequence[tuple[Row, Story]]) -> list[tuple[Row, Story]]:
    """At most `MOST_PLOTS`, each strategy before any other scenario of one that is there."""
    first: dict[str, tuple[Row, Story]] = {}
    for row, story in stories:
        first.setdefault(str(row["scenario"][STRATEGY]), (row, story))
    chosen = list(first.values())
    chosen += [pair for pair in stories if not any(pair[0] is row for row, _ in chosen)]
    return chosen[:MOST_PLOTS]


def step_times(story: Story) -> dict[str, list[tuple[float, float]]]:
    """Worker → (number of its step, seconds from entering the region `step` to leaving it)."""
    found: dict[str, list[tuple[float, float]]] = {}
    for lane in story.lanes:
        if lane.role == "engine":
            continue
        for span in lane.spans:
            if span.kind == REGION and span.name == "step" and not span.flags:
                points = found.setdefault(span.worker or lane.thread, [])
                points.append((float(len(points)), max((span.end - span.start) / 1e9, 1e-6)))
    return found


def _steps(stories: Sequence[tuple[Row, Story]], names: Mapping[str, str]) -> tuple[Plot, ...]:
    times = [(row, step_times(story)) for row, story in stories]
    taken = [seconds for _, found in times for points in found.values() for _, seconds in points]
    ends = (min(taken), max(taken)) if taken else None
    return tuple(
        plot(names.get(row["scenario_id"], row["scenario_id"]), list(found.items()), "step", "s", log=True, ends=ends)
        for row, found in times
        if found
    )


def _memory(stories: Sequence[tuple[Row, Story]], names: Mapping[str, str]) -> tuple[Plot, ...]:
    """Memory after each step of any worker, by device: allocated and reserved."""
    plots = []
    for row, story in stories:
        series: dict[str, list[tuple[float, float]]] = {}
        for one in story.memory:
            for what, size in (("allocated", one.allocated), ("reserved", one.reserved)):
                points = series.setdefault(f"{clip(one.device, 40)} {what}", [])
                points.append((float(len(points)), size / GIB))
        if series:
            title = names.get(row["scenario_id"], row["scenario_id"])
            plots.append(plot(title, list(series.items()), "step of any worker", "GiB"))
    return tuple(plots)


def _peaks(by_lock: Mapping[str, Sequence[Tallies]]) -> tuple[Peak, ...]:
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for lock, parts in by_lock.items():
        for part in parts:
            for device, (allocated, reserved) in part.memory.items():
                known = found.get((lock, device), (0.0, 0.0))
                found[lock, device] = (max(known[0], allocated), max(known[1], reserved))
    most = max((size for pair in found.values() for size in pair), default=0.0)
    return tuple(
        Peak(lock, device, *(bar(size / GIB, most / GIB) for size in pair))
        for (lock, device), pair in found.items()
    )


def _work(by_lock: Mapping[str, Sequence[Tallies]], what: str) -> Matrix:
    """Means a trial, by strategy and worker."""
    sums: dict[str, dict[str, float]] = {}
    workers: dict[str, None] = {}
    for lock, parts in by_lock.items():
        trials = sum(part.trials for part in parts)
        row = sums.setdefault(lock, {})
        for part in parts:
            for name, work in part.work.items():
                workers.setdefault(name)
                row[name] = row.get(name, 0.0) + _count(work, what) / trials
    shown = sorted(workers, key=lambda name: (name == NO_WORKER, name))[:MOST_WORKERS]
    most = max((value for row in sums.values() for value in row.values()), default=0.0)
    rows = tuple(
        (lock, tuple(bar(row[name], most) if name in row else Bar("–", "") for name in shown))
        for lock, row in list(sums.items())[:MOST_ROWS]
    )
    return Matrix(what.replace("_", " "), tuple(shown), rows, most == 0.0)


def _count(work: Work, what: str) -> int:
    return work.compiles if what == "compiles" else work.dense_calls


def _locks(
    by_lock: Mapping[str, Sequence[Tallies]], of_torch: Mapping[str, tuple[int, LockTime]]
) -> tuple[LockRow, ...]:
    """The strategy's locks of all trials; torch's compile lock of those good trials whose event logs were read."""
    found: list[tuple[str, str, int, LockTime]] = []
    for strategy, parts in by_lock.items():
        trials = sum(part.trials for part in parts)
        sums: dict[str, LockTime] = {}
        for part in parts:
            for name, time in part.locks.items():
                _add(sums.setdefault(name, LockTime()), time)
        found += [(strategy, _lock_name(name), trials, time) for name, time in sums.items()]
        if strategy in of_torch:
            found.append((strategy, "torch's compile lock", *of_torch[strategy]))
    most = max((max(time.waited, time.held) / trials for *_, trials, time in found), default=0.0)
    return tuple(
        LockRow(
            strategy,
            lock,
            trials,
            bar(time.waited / trials, most),
            bar(time.held / trials, most),
            number(time.waits / trials),
        )
        for strategy, lock, trials, time in found
    )


def _lock_name(name: str) -> str:
    return "the strategy's lock" if name == "strategy" else f"the strategy's {clip(name, LONGEST_NAME)}"


def _compile_lock(stories: Sequence[tuple[Row, Story]], kind_of: KindOf) -> dict[str, tuple[int, LockTime]]:
    found: dict[str, tuple[int, LockTime]] = {}
    for row, story in stories:
        strategy = kind_of(row["scenario"])
        trials, time = found.get(strategy, (0, LockTime()))
        waits = [s for lane in story.lanes for s in lane.spans if s.kind == WAIT and s.name == COMPILE_LOCK]
        held = sum(hold.end - hold.start for hold in story.held.get(COMPILE_LOCK, ()))
        _add(time, LockTime(sum(span.end - span.start for span in waits) / 1e9, held / 1e9, len(waits)))
        found[strategy] = (trials + 1, time)
    return found


def _add(into: LockTime, more: LockTime) -> None:
    into.waited += more.waited
    into.held += more.held
    into.waits += more.waits
    into.taken += more.taken
