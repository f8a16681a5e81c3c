"""From a failing trial and a passing one to the critical pair of events, and to a plan that reproduces the failure.

The search itself is `harness.analysis.minimise`; here orders are run, and the plan is put to the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.analysis.minimise import CriticalPair, Order, critical_pair, plans
from harness.control.repeats import tells, why_silent
from harness.control.replay import OldTrial, need_recording, read_trial, run_once
from harness.control.reproduce import Reproduction, reproduce
from harness.control.request import Executor, Row
from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.errors import MatrixError, UserError
from harness.core.outcome import OK, is_failure, primary
from harness.core.scenario import Scenario
from harness.core.schedulespec import parse_schedule

Note = Callable[[str], None]
SEEDS = 20
"""How many other seeds are run in search of a passing trial."""
TRIES = 3
"""How often a trial that says nothing (out of memory, say) is run before the search gives up."""


@dataclass(frozen=True)
class Minimised:
    """`case`: the smallest plan that reproduced the failure each time, and the other way round never; None when none did.

    `reason`: why the last plan that was tried is no such plan; of a `case`, why it was not tried the other way round; else "".
    """

    failing: OldTrial
    passing: OldTrial
    pair: CriticalPair
    case: Case | None
    confirmed: Reproduction | None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The document of `minimise --json`."""
        first, second = self.pair.events
        return {
            "failing": str(self.failing.folder),
            "passing": str(self.passing.folder),
            "first": str(first),
            "second": str(second),
            "orders_run": self.pair.asked,
            "case": None if self.case is None else self.case.to_json(),
            "confirmed": None if self.confirmed is None else self.confirmed.to_json(),
            "reason": self.reason,
        }


def read_pair(folder: Path, against: Path | None) -> tuple[OldTrial, OldTrial | None]:
    """The failing trial, and the passing one: the one that is named, else one of the same run, else None.

    Raises UserError: the trial did not fail, or the other one did; a recording is missing; another scenario.
    """
    failing = read_trial(folder)
    need_recording(failing, "minimise")
    label = primary(failing.outcomes)
    if not is_failure(label):
        raise UserError(f"{folder}: it ended as {label}; minimise needs a trial that failed")
    if against is not None:
        passing = read_trial(against)
        need_recording(passing, "minimise")
        if passing.outcomes != (OK,):
            raise UserError(f"{against}: it ended as {primary(passing.outcomes)}; --against needs a trial that passed")
        if passing.scenario.replace(schedule="none") != failing.scenario.replace(schedule="none"):
            raise UserError(f"{against}: another scenario than {folder}; only the schedule may differ")
        return failing, passing
    for other in sorted(failing.folder.resolve().parent.iterdir()):
        if _passed_alike(other, failing):
            return failing, read_trial(other)
    return failing, None


def minimise(
    failing: OldTrial, passing: OldTrial | None, executor: Executor, out: Path, *, times: int, note: Note
) -> Minimised:
    """Search, and put what is found to the test.

    Raises UserError: no passing trial is found, they do not differ, or a trial that is needed says nothing time and again.
    """
    label = primary(failing.outcomes)
    effect = Effect(labels=(label,))
    if passing is None:
        passing = _other_seed(failing, executor, out, note)
    runs = _Runs(failing, executor, out, effect, note)
    pair = critical_pair(failing.recording.events, passing.recording.events, runs.fails)
    note(f"critical pair: {pair}")
    workers = {str(name): str(role) for name, role in failing.recording.head.get("workers", {}).items()}
    scenario = failing.scenario.replace(schedule="none")
    reason = NOTHING_DOES
    for number, plan in enumerate(plans(pair, workers), start=1):
        case = Case(f"minimised-{label}", f"{label}: {pair}", scenario, plan, effect, failing.pipeline)
        if not reproduce(case, executor, out / f"plan-{number}", times=1, note=note).reproduced:
            continue
        confirmed = reproduce(case, executor, out / f"plan-{number}-confirmed", times=times, note=note)
        wrong = _not_the_cause(confirmed)
        if not wrong:
            only = "" if plan.counterfactual is not None else ONLY_REPLAYED
            return Minimised(failing, passing, pair, case, confirmed, only)
        reason = wrong
        note(f"plan {number} is not it: {reason}")
    return Minimised(failing, passing, pair, None, None, reason)


NOTHING_DOES = "no plan of it reproduces the failure: more decides than the order of these points"
ONLY_REPLAYED = "as a plan the pair was not tried the other way round: one of the two is no sync point, or one role has both"


def _not_the_cause(confirmed: Reproduction) -> str:
    """Why the order of this plan is not what the failure comes from, in a sentence; "" when it is."""
    done = f"{confirmed.reproduced}/{confirmed.times}"
    if confirmed.reproduced < confirmed.times:
        return f"its plan reproduced the failure {done} times: more decides than the order of these points"
    if confirmed.counterfactual_untried:
        return f"its plan reproduced the failure {done} times, and the other way round could not be tried: " + (
            confirmed.counterfactual_reason
        )
    if confirmed.counterfactual_reproduced:
        other = f"{confirmed.counterfactual_reproduced}/{confirmed.counterfactual_times}"
        return f"its plan fails {done} times, and {other} the other way round: the order is not the cause by itself"
    return ""


def _other_seed(failing: OldTrial, executor: Executor, out: Path, note: Note) -> OldTrial:
    """A passing trial of another seed, run now."""
    for seed in range(SEEDS):
        folder = out / f"seed-{seed}"
        schedule = _with_seed(failing.scenario.schedule, seed)
        _, last = _until_told(failing, executor, folder, schedule, {}, Effect(labels=(primary(failing.outcomes),)))
        if _passed_alike(last, failing):
            note(f"seed {seed} passes")
            return read_trial(last)
    raise UserError(f"{failing.folder}: none of {SEEDS} other seeds passes; name a trial that passed with --against")


def _passed_alike(folder: Path, failing: OldTrial) -> bool:
    """Whether the folder is of a trial that passed, with a recording, and differs in its schedule only."""
    try:
        spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        scenario = Scenario.from_dict(spec["scenario"])
        outcomes = result["outcomes"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, MatrixError):  # none that a run wrote
        return False
    same = scenario.replace(schedule="none") == failing.scenario.replace(schedule="none")
    recorded = parse_schedule(scenario.schedule).kind in ("delays", "pct") and (folder / "recording.jsonl").exists()
    return same and recorded and outcomes == [OK]


def _with_seed(schedule: str, seed: int) -> str:
    kind, _, *rest = schedule.split(":")
    return ":".join([kind, str(seed), *rest])


def _until_told(
    old: OldTrial, executor: Executor, folder: Path, schedule: str, extra: Mapping[str, Any], effect: Effect
) -> tuple[Row, Path]:
    """The first run that says something, with its folder. One that says nothing neither fails nor passes."""
    for number in range(1, TRIES + 1):
        own = folder if number == 1 else folder.with_name(f"{folder.name}-again-{number}")
        row = run_once(old, executor, own, schedule, extra)
        if tells(effect, row):
            return row, own
    raise UserError(
        f"{folder}: {TRIES} runs of it say nothing, neither that it fails nor that it passes ({why_silent(row)}); mend that, "
        "and run minimise again"
    )


class _Runs:
    """Orders, run and judged."""

    def __init__(self, failing: OldTrial, executor: Executor, out: Path, effect: Effect, note: Note) -> None:
        self._failing, self._executor, self._out = failing, executor, out
        self._effect, self._note = effect, note
        self._count = 0

    def fails(self, order: Order) -> bool:
        """Whether this order comes to the failing trial's outcome. Raises UserError: each of `TRIES` runs says nothing."""
        self._count += 1
        folder = self._out / f"order-{self._count:03d}"
        recording = replace(self._failing.recording, events=tuple(order))
        extra = {"recording": recording.to_json(), **_QUICK}
        row, _ = _until_told(self._failing, self._executor, folder, "replay", extra, self._effect)
        failed = self._effect.seen(row)
        self._note(f"order {self._count}: {'fails' if failed else 'passes'}")
        return failed


_QUICK = {"deadlock_s": 1.0, "native_stacks": False}
