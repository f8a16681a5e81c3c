"""What a trial did that ended without an account: from `errors.jsonl`, which has its errors whole, and from its events.

Both were written as things happened, so they hold what came before the death; the last of it may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core.causes import MOST_ERRORS, labels_by_time, mark_consequences
from harness.core.errorfile import CLOCK, TORCH, read_errors
from harness.core.events import Event
from harness.core.losses import NOT_FINITE
from harness.core.outcome import LABELS

from .request import Row, TrialRequest


@dataclass
class _Error:
    """An error as `mark_consequences` knows it, and as a row has it."""

    label: str
    message: str
    worker: str
    at_ns: int
    tracers: list[dict[str, str]]
    consequence: bool
    row: dict[str, Any]


@dataclass
class _Events:
    """What the events tell."""

    workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: list[Event] = field(default_factory=list)  # step.failed
    problems: list[tuple[int, str, str]] = field(default_factory=list)  # at ns, label, text
    dense_ns: int | None = None
    dense_calls: int = 0
    compiles: int = 0

    def worker(self, name: str) -> dict[str, Any]:
        """Its part of the row."""
        new = {"role": "", "steps_ok": 0, "steps_failed": 0, "tokens": 0, "compiles": 0, "dense_calls": 0}
        return self.workers.setdefault(name, {**new, "losses": [], "first_good_s": None, "first_error_step": None})

    def add(self, event: Event) -> None:
        """Count one event; what it is missing, or is of another form, is not counted."""
        kind, name, at = event.get("k"), str(event.get("w") or ""), int(event["t"])
        if kind in ("step.done", "step.failed"):
            name = name or str(event.get("th") or "")  # a thread of the workload's own
        if kind == "worker.start":
            self.worker(name)["role"] = str(event.get("role") or "")
        elif kind == "step.done":
            worker = self.worker(name)
            worker["steps_ok"] += 1
            worker["tokens"] += int(event.get("tokens") or 0)
            worker["losses"].append(event.get(NOT_FINITE, event.get("loss")))
            if worker["first_good_s"] is None:
                worker["first_good_s"] = at / 1e9
        elif kind == "step.failed":
            worker = self.worker(name)
            worker["steps_failed"] += 1
            worker["losses"].append(None)
            if worker["first_error_step"] is None:
                worker["first_error_step"] = event.get("step")
            self.failed.append(event)
        elif kind == "dense.call":
            self.dense_calls += 1
            self.dense_ns = at if self.dense_ns is None else self.dense_ns
            if name:
                self.worker(name)["dense_calls"] += 1
        elif kind == "compile.end" and event.get("what") == "graph" and event.get("ok"):
            self.compiles += 1
            if name:
                self.worker(name)["compiles"] += 1
        elif kind == "grad.missing":
            text = f"{name}: {event.get('n')} parameters got no gradient, among them {event.get('first')}"
            self.problems.append((at, "no_grad", text))
        elif kind == "finding" and event.get("label") in LABELS:
            self.problems.append((at, str(event["label"]), f"{name}: found before the process ended, which kept the words"))

    def steps(self, which: str) -> int:
        """Of the drafters; of a workload without any, of all."""
        drafters = [worker for worker in self.workers.values() if worker["role"] == "drafter"]
        return sum(worker[which] for worker in drafters or self.workers.values())


def last_words(request: TrialRequest, events: Iterable[Event]) -> tuple[list[str], Row]:
    """Labels, the earliest first, of what went wrong before the process ended, and the keys of a row that are known.

    Raises RunFolderError: the events are damaged.
    """
    seen = _Events()
    for event in events:
        seen.add(event)
    lines = read_errors(request.folder)
    errors = [_of_line(line) for line in lines]
    told = {(error.row.get("thread"), error.row.get("step")) for error in errors}
    untold = [_of_event(event) for event in seen.failed if (event.get("th"), event.get("step")) not in told]
    untold = [error for error in untold if error.label in LABELS]
    room = max(0, MOST_ERRORS - len(errors))
    errors = sorted([*errors, *untold[:room]], key=lambda error: error.at_ns)
    torch = next((str(line[TORCH]) for line in lines if line.get(TORCH)), "")
    mark_consequences(errors, torch)
    dense_ns = seen.dense_ns if request.scenario.compile != "none" else None
    labels = labels_by_time(errors, [(at, label) for at, label, _ in seen.problems], dense_ns)
    row: Row = {
        "errors": [{**error.row, "consequence": error.consequence} for error in errors],
        "fx_errors": sum(error.label == "fx_error" for error in errors),
        "workers": dict(sorted(seen.workers.items())),
        "dense_calls": seen.dense_calls,
        "compiles": seen.compiles,
        "steps_ok": seen.steps("steps_ok"),
        "steps_failed": seen.steps("steps_failed"),
        "torch": torch,
    }
    if seen.workers:
        row["steps_expected"] = request.scenario.steps * request.scenario.drafters
    if len(untold) > room:
        row["errors_dropped"] = len(untold) - room
    if seen.problems:
        row["problems"] = [{"label": label, "text": text} for _, label, text in seen.problems]
    return labels, row


def _of_line(line: Mapping[str, Any]) -> _Error:
    row = {key: value for key, value in line.items() if key not in (TORCH, CLOCK)}
    return _Error(
        label=str(row["label"]),
        message=str(row.get("message") or ""),
        worker=str(row.get("worker") or ""),
        at_ns=int(float(row["at_s"]) * 1e9),
        tracers=row.get("tracers") or [],
        consequence=bool(row.get("consequence")),
        row=row,
    )


def _of_event(event: Event) -> _Error:
    """One whose line could not be written, or of which there was no room: its traceback is gone."""
    kind, worker = str(event.get("error")), str(event.get("w") or "")
    row: dict[str, Any] = {
        "label": event.get("label"),
        "type": kind,
        "message": "",
        "fingerprint": f"{kind}, of which only an event was written",
        "worker": worker,
        "thread": event.get("th"),
        "region": "",
        "step": event.get("step"),
        "traceback": "",
        "tracers": [],
        "stage": "",
        "at_s": int(event["t"]) / 1e9,
    }
    return _Error(str(event.get("label")), "", worker, int(event["t"]), [], False, row)
