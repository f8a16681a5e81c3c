"""A trial that ended → its row of `results.jsonl`, from what the subject wrote and how its process ended."""

from __future__ import annotations

import json
import os
import signal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core import errorfile
from harness.core.eventfile import LINES_NAME, RAW_NAME, merge, read_raw
from harness.core.events import read_events
from harness.core.lockspec import parse_lock
from harness.core.ordermark import kept
from harness.core.outcome import primary
from harness.core.rowshape import ROW_SCHEMA

from .last_words import last_words
from .request import Row, TrialRequest

LAST_OF_THREAD = 5
MOST_LAST_EVENTS = 200
_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Ending:
    """How a subject's process ended. `how`: exited, killed (by the harness, on an interrupt), timeout, hang.

    `for_memory`: the kernel killed processes for lack of memory meanwhile; None: it does not say. `cycle`: of a hang, its
    threads wait for one another in a circle.
    """

    status: int | None  # wait status, None when it never started
    how: str
    wall_s: float
    start_s: float | None
    text: str = ""  # why it never started, or, of a hang, why it does not go on
    for_memory: bool | None = None
    cycle: bool = False


def skipped_row(request: TrialRequest, reason: str) -> Row:
    """The row of a scenario that cannot run here."""
    return {**_empty(request), "outcome": "skipped", "outcomes": ["skipped"], "reason": reason}


def trial_row(request: TrialRequest, ending: Ending) -> Row:
    """The row of a trial that was started, or could not be."""
    unsorted = _merged(request.folder)
    result = _read_result(request.folder)
    row = {**_empty(request), "wall_s": round(ending.wall_s, 4), "start_s": ending.start_s}
    row["exit"] = _exit(ending)
    before: list[str] = []  # what went wrong before the process did
    if result is not None:
        row.update({key: result[key] for key in result if key in row or key in _EXTRA})
        (request.folder / errorfile.NAME).unlink(missing_ok=True)  # the result has them all
    else:
        before, found = last_words(request, _events(request.folder))
        row.update(found)
        if (told := kept(request.folder)) is not None:
            row["schedule"] = told  # the plan's order came about, and then the process went
    labels, reason = _labels(request, result, ending)
    if labels[0] not in ("setup_error", "interrupted"):
        labels = list(dict.fromkeys([*before, *labels]))
    if result is not None and (idle := _idle_lock(request, row)):
        if labels == ["ok"]:
            labels, reason = ["skipped"], idle
        else:
            row["problems"] = [*row.get("problems", []), {"label": "lock", "text": idle}]
    row["outcomes"] = labels
    row["outcome"] = primary(labels)
    row["reason"] = reason or row["reason"]
    if unsorted:
        row["problems"] = [*row.get("problems", []), {"label": "events", "text": unsorted}]
    if row["outcome"] not in ("ok", "skipped") and (result is None or ending.how != "exited"):
        row["last_events"] = last_events(request.folder)
    row["evidence"] = sorted(
        entry.name for entry in os.scandir(request.folder) if entry.is_file() and entry.stat().st_size
    )
    return row


def _merged(folder: Path) -> str:
    """Sort the events; why that could not be done, or ""."""
    try:
        merge(folder)
    except OSError as error:
        return f"its events could not be sorted: {error.strerror}; they are in {RAW_NAME} as they came"
    return ""


_EXTRA = ("problems", "dropped_events", "errors_dropped", "locks", "facts", "schedule", "memory")


def _empty(request: TrialRequest) -> Row:
    return {
        "schema": ROW_SCHEMA,
        "trial": request.trial_id,
        "scenario_id": request.scenario.id,
        "scenario": request.scenario.to_dict(),
        "repeat": request.repeat,
        "outcome": "ok",
        "outcomes": ["ok"],
        "reason": "",
        "fx_errors": 0,
        "dense_calls": 0,
        "compiles": 0,
        "startup_s": None,
        "tokens_per_s": None,
        "wall_s": 0.0,
        "start_s": None,
        "steps_ok": 0,
        "steps_failed": 0,
        "steps_expected": 0,
        "errors": [],
        "workers": {},
        "probes": {},
        "exit": {"status": None, "signal": None, "how": "not started"},
        "oracles": {},
        "evidence": [],
        "last_events": [],
        "torch": "",
        "python": "",
    }


def _read_result(folder: Path) -> dict[str, Any] | None:
    try:
        text = (folder / "result.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    result: dict[str, Any] = json.loads(text)  # written atomically: it is whole, or it is our own bug
    return result


def _exit(ending: Ending) -> dict[str, Any]:
    if ending.status is None:
        return {"status": None, "signal": None, "how": "not started"}
    code = os.waitstatus_to_exitcode(ending.status)
    name = _signal_name(-code) if code < 0 else None
    return {"status": code if code >= 0 else None, "signal": name, "how": ending.how}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _labels(request: TrialRequest, result: dict[str, Any] | None, ending: Ending) -> tuple[list[str], str]:
    """Outcome labels and a reason. The subject's own word counts first; a death it could not report is added.

    Who dies or stands still before any worker could begin says nothing of what the trial is about.
    """
    if ending.how == "killed":
        return ["interrupted"], "the run was interrupted"
    if ending.status is None:
        return ["setup_error"], ending.text
    if result is not None:
        labels = list(result["outcomes"])
        return labels, str(result.get("reason", ""))
    exit_ = _exit(ending)
    before, after = ("before the workload began", "") if ending.start_s is None else _stage(request.folder)
    if ending.how in ("timeout", "hang"):
        what = "no sign of life, not even from the watchdog"
        if ending.how == "timeout":
            what = f"no end within the time limit ({request.timeout_s:g} s)"
        parts = [f"{what}, {before}" if before else what, ending.text, _tail(request.folder) if before else ""]
        label = "setup_error" if before else "deadlock" if ending.cycle else "hang"
        return [label], "; ".join(part for part in parts if part)
    what = f"the process ended by {exit_['signal']}" if exit_["signal"] else f"the process ended with {exit_['status']}"
    if exit_["signal"] == "SIGKILL":
        if ending.for_memory:
            return ["out_of_memory"], "the kernel killed the process for lack of host memory"
        what += ", not sent by the harness"
        what += " (the system's out-of-memory killer sends it)" if ending.for_memory is None else ""
    if exit_["signal"] and not before:
        what += after
    parts = [f"{what} {before}" if before else what, "" if exit_["signal"] and not before else _tail(request.folder)]
    return ["setup_error" if before else "crash"], "; ".join(part for part in parts if part)


def _stage(folder: Path) -> tuple[str, str]:
    """At which stage a trial ended, from one reading of its events: they may be many.

    First of one that never came to its workers; "" where it did, or its events do not tell. Then which drafters' threads had
    ended by then, for a death that a thread's end may have brought about; targets end early.
    """
    begun = ready = False
    roles: dict[str, Any] = {}
    over: list[str] = []
    for event in _events(folder):
        kind, worker = event.get("k"), str(event.get("w") or "")
        ready = ready or kind == "subject.ready"
        begun = begun or kind in ("subject.begin", "worker.start")
        if kind == "worker.start":
            roles[worker] = event.get("role")
        elif kind == "worker.end" and roles.get(worker) != "target":
            over.append(worker)
    before = "during the set-up" if ready and not begun else ""
    return before, f", after {' and '.join(sorted(over))} had ended" if over else ""


def _events(folder: Path) -> Iterable[dict[str, Any]]:
    if (folder / LINES_NAME).exists():
        return read_events(folder / LINES_NAME)
    return read_raw(folder / RAW_NAME)[0] if (folder / RAW_NAME).exists() else ()


def _idle_lock(request: TrialRequest, row: Row) -> str:
    """Why the lock held nothing in steps that went well; "" when it did, or was not meant to.

    A plan's order is what its trial is about: there a lock that looks elsewhere is told by the plan's ending.
    """
    scenario = request.scenario
    looked_at = parse_lock(scenario.lock).looks_at
    taken = sum(lock.get("taken", 0) for lock in row.get("locks", {}).values())
    if not looked_at or taken or not row["steps_ok"] or scenario.schedule.split(":")[0] in _CONSTRAINED:
        return ""
    entered = ", ".join(row.get("facts", {}).get("regions", [])) or "none"
    return (
        f"the lock strategy held nothing: no worker entered region {' or '.join(looked_at)} (entered: {entered}); "
        "name the regions of a step in the workload, or leave this strategy out"
    )


_CONSTRAINED = ("directed", "replay")


def _tail(folder: Path) -> str:
    """The last line of what it printed: of a traceback, the exception. "" where it printed nothing."""
    try:
        with open(folder / "stdout.txt", "rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").strip().splitlines()
    except FileNotFoundError:
        return ""
    return f"its output ends: {lines[-1][-300:]}" if lines else ""


def last_events(folder: Path) -> list[dict[str, Any]]:
    """The newest events of each thread of a trial, in the order of time, for a row about a death or a hang.

    A thread that stands still has said its last long before the others, so each keeps its own: `LAST_OF_THREAD`, and
    fewer where so many threads would make more than `MOST_LAST_EVENTS`.
    """
    path = folder / LINES_NAME
    if not path.exists():
        return []
    newest: dict[tuple[Any, Any], deque[tuple[int, dict[str, Any]]]] = {}
    for place, event in enumerate(read_events(path)):
        thread = (event.get("id"), event.get("th"))  # an ident is given again once its thread has ended
        newest.setdefault(thread, deque(maxlen=LAST_OF_THREAD)).append((place, event))
    each = max(1, min(LAST_OF_THREAD, MOST_LAST_EVENTS // max(1, len(newest))))
    kept = sorted((one for events in newest.values() for one in list(events)[-each:]), key=lambda one: one[0])
    return [event for _, event in kept[-MOST_LAST_EVENTS:]]
