"""Runs a recorded trial again in the same order, and says whether it came to the same.

A trial with `delays` or `pct` is replayed point by point. One with a plan is run by the plan again, its roles bound to the
workers they were bound to; what must come back is the order of the plan's steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.control.request import Executor, Row, TrialRequest
from harness.core.errors import MatrixError, RunFolderError, UserError
from harness.core.outcome import LABELS
from harness.core.plan import STOP_DECIDED, Plan, bind
from harness.core.recording import Passed, Recording, RecordingError, read_recording
from harness.core.scenario import Scenario
from harness.core.schedulespec import parse_schedule


@dataclass(frozen=True)
class OldTrial:
    """A trial's folder, read."""

    folder: Path
    scenario: Scenario
    pipeline: Mapping[str, Any]
    extra: Mapping[str, Any]
    outcomes: tuple[str, ...]
    facts: Mapping[str, Any]
    recording: Recording

    @property
    def kind(self) -> str:
        """Of its schedule."""
        return parse_schedule(self.scenario.schedule).kind


@dataclass(frozen=True)
class Replayed:
    """`difference`: the first event that differs, or ""."""

    old: OldTrial
    row: Row
    trial: str
    difference: str
    note: str = ""  # other versions, with --force
    repairs: int = 0  # replays before this one that diverged, each mended by making threads run late
    late: tuple[int, ...] = ()  # the events of the recording at which they were

    @property
    def same_order(self) -> bool:
        """Of the points that the plan or the recording constrains."""
        return not self.difference

    @property
    def same_outcome(self) -> bool:
        """The same labels."""
        return set(self.old.outcomes) == set(self.row["outcomes"])

    @property
    def exit_code(self) -> int:
        """0: the same order and outcome."""
        return 0 if self.same_order and self.same_outcome else 1

    def to_json(self) -> dict[str, Any]:
        """The document of `replay --json`."""
        return {
            "trial": str(self.old.folder),
            "schedule": self.old.scenario.schedule,
            "same_order": self.same_order,
            "same_outcome": self.same_outcome,
            "difference": self.difference or None,
            "repairs": self.repairs,
            "late_events": [index + 1 for index in self.late],
            "recorded": {"outcomes": list(self.old.outcomes), "events": len(self.old.recording.events)},
            "replayed": {"outcomes": list(self.row["outcomes"]), "trial": self.trial},
            "note": self.note or None,
        }


def read_trial(folder: Path) -> OldTrial:
    """Raises RunFolderError: no trial's folder, or one that did not end; RecordingError: it has no whole recording."""
    try:
        spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFolderError(f"{folder}: not the folder of a trial; give one below trials/ of a run") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{folder}/spec.json: cannot be read: {error}") from error
    for key in ("scenario", "pipeline", "extra"):
        if not isinstance(spec, dict) or not isinstance(spec.get(key), dict):
            raise RunFolderError(f'{folder}/spec.json: it has no table "{key}", so it is not what a run wrote')
    try:
        scenario = Scenario.from_dict(spec["scenario"])
    except MatrixError as error:
        raise RunFolderError(f"{folder}/spec.json: {error}") from None
    recording = read_recording(folder)
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise RunFolderError(f"{folder}: it has no result, so there is nothing to hold a replay against") from None
    outcomes, facts = (result.get("outcomes"), result.get("facts", {})) if isinstance(result, dict) else (None, {})
    if not isinstance(outcomes, list) or not outcomes or any(label not in LABELS for label in outcomes):
        raise RunFolderError(f"{folder}/result.json: it names no outcomes, so there is nothing to hold a replay against")
    if not isinstance(facts, dict):
        raise RunFolderError(f"{folder}/result.json: its facts are no table, so it is not what a run wrote")
    return OldTrial(folder, scenario, spec["pipeline"], spec["extra"], tuple(outcomes), facts, recording)


def replay(old: OldTrial, executor: Executor, folder: Path, *, note: str = "") -> Replayed:
    """Run it again. `note`: how the versions differ (`harness.core.recording.check_same`), for the result."""
    if old.kind == "directed":
        bindings = old.recording.head.get("bindings", {})
        if "plan" not in old.extra:
            raise RunFolderError(f"{old.folder}/spec.json: its schedule is directed, but it has no plan")
        plan = bind(Plan.from_json(old.extra["plan"]), bindings)
        row = run_once(old, executor, folder, "directed", {**old.extra, "plan": plan.to_json()})
        new = read_recording(folder) if (folder / "recording.jsonl").exists() else Recording(())
        difference = first_difference(old.recording.events, new.events)
    else:
        return _point_by_point(old, executor, folder, note)
    return Replayed(old, row, str(folder), difference, note)


REPAIRS = 6
"""How many divergences of a recording of free threads are mended before one is reported."""


def _point_by_point(old: OldTrial, executor: Executor, folder: Path, note: str) -> Replayed:
    """Replays; where a thread came to another point than recorded, it and those ahead of it are made to run late there.

    Only where threads ran freely between points when they were recorded (`delays`). What the last replay came to.
    """
    late: list[int] = []
    extra = {**old.extra, "recording": old.recording.to_json()}
    row, last, repairs = run_once(old, executor, folder, "replay", extra), folder, 0
    for number in range(2, REPAIRS + 2):
        found = (row.get("schedule") or {}).get("divergence")
        suspects = {found["index"], *found["ahead"]} if found else set()
        if old.kind != "delays" or suspects <= set(late):
            break
        late = sorted({*late, *suspects})
        last, repairs = folder.with_name(f"{folder.name}-{number}"), number - 1
        row = run_once(old, executor, last, "replay", {**extra, "late": late})
        if not divergence(row):
            break
    return Replayed(old, row, str(last), divergence(row), note, repairs, tuple(late))


def run_once(old: OldTrial, executor: Executor, folder: Path, schedule: str, extra: Mapping[str, Any]) -> Row:
    """One trial like the old one, under another schedule; to its end, though the old one may have ended once it was decided."""
    folder.mkdir(parents=True)
    rows: list[Row] = []
    scenario = old.scenario.replace(schedule=schedule)
    extra = {key: value for key, value in extra.items() if key != STOP_DECIDED}
    request = TrialRequest(folder.name, scenario, 0, folder, pipeline=dict(old.pipeline), extra=extra)
    executor.run([request], lambda _: None, rows.append)
    return rows[0]


def first_difference(old: Sequence[Passed], new: Sequence[Passed]) -> str:
    """In words; "" when they are the same."""
    for number, (was, now) in enumerate(zip(old, new, strict=False), start=1):
        if was != now:
            return f"event {number}: recorded {was}, now {now}"
    if len(old) > len(new):
        return f"event {len(new) + 1}: recorded {old[len(new)]}, now the trial ended before it"
    if len(new) > len(old):
        return f"event {len(old) + 1}: recorded nothing more, now {new[len(old)]}"
    return ""


def divergence(row: Row) -> str:
    """What the replaying schedule says; "" when the order was the same."""
    told = row.get("schedule") or {}
    if told.get("order") == "same":
        return ""
    found = told.get("divergence")
    if not found:
        return f"the replay ended as {row['outcome']} and said nothing of its order: {row.get('reason', '')}"
    came = f", now {found['came']}" if found["came"] else ""
    recorded = found["expected"] or "nothing more of this thread"
    return f"event {found['index'] + 1}: recorded {recorded}{came}: {found['why']}"


def need_recording(old: OldTrial, command: str) -> None:
    """Raises UserError where a recording of single points is wanted and the trial was directed by a plan."""
    if old.kind not in ("delays", "pct"):
        raise UserError(f"{command} needs a trial with schedule delays or pct; {old.folder} has {old.scenario.schedule}")
    if not old.recording.events:
        raise RecordingError(f"{old.folder}: its recording is empty: no worker passed any point")
