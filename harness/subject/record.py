"""What one trial did, by worker: steps, losses, counts, errors. Written by the workers, read at the end.

A worker's tally is written by its own thread only (its engine thread may add counts while the worker waits in
backward), so there is no lock. `Trial.errors` is appended to by many threads; `list.append` is atomic. An
error is also told at once, since the process may end before its account is written.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core import losses
from harness.core.causes import MOST_ERRORS

from .classify import Fault, classify
from .identity import Thread
from .warm_time import WarmTime

MAX_LOSSES = 20_000  # a worker


@dataclass
class Tally:
    """One worker's account. Times are nanoseconds since the subject started."""

    role: str
    steps_ok: int = 0
    steps_failed: int = 0
    tokens: int = 0
    compiles: int = 0
    dense_calls: int = 0
    losses: list[float | None] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    first_good_ns: int | None = None
    ended_ns: int | None = None  # of its last step
    steps: list[tuple[int, int]] = field(default_factory=list)  # (end ns, tokens) of every good step
    first_error_step: int | None = None
    warm: WarmTime = field(default_factory=WarmTime)
    peaks: dict[str, dict[str, Any]] = field(default_factory=dict)  # memory of its own process, if it has one, by device

    def as_json(self) -> dict[str, Any]:
        """The worker's part of `result.json`; a step that raised has null for a loss, one whose loss is none `"nan"`."""
        return {
            "role": self.role,
            "steps_ok": self.steps_ok,
            "steps_failed": self.steps_failed,
            "tokens": self.tokens,
            "compiles": self.compiles,
            "dense_calls": self.dense_calls,
            "losses": [losses.written(loss) for loss in self.losses],
            "counts": dict(self.counts),  # copied in one go: the worker may still run
            "facts": dict(self.facts),
            "first_good_s": None if self.first_good_ns is None else self.first_good_ns / 1e9,
            "first_error_step": self.first_error_step,
            **self.warm.as_json(),
        }


@dataclass
class ErrorRecord:
    """One exception: what, where, when, and who was inside a trace at that moment."""

    label: str
    type: str
    message: str
    fingerprint: str
    worker: str
    thread: str
    region: str
    step: int
    at_ns: int
    traceback: str
    tracers: list[dict[str, str]] = field(default_factory=list)
    consequence: bool = False
    stage: str = ""  # "set-up", "warm-up", "reference", "check": of the trial, where it came outside of the workers

    def as_json(self) -> dict[str, Any]:
        """As in a row of `results.jsonl`."""
        out = dict(vars(self))
        out["at_s"] = out.pop("at_ns") / 1e9
        return out


class Trial:
    """Everything that ends up in `result.json` besides what probes add."""

    def __init__(self) -> None:
        self.tell: Callable[[Mapping[str, Any]], None] | None = None  # each error, at once (`errorlog`)
        self.reset()

    def reset(self) -> None:
        """Empty again, in place: probes hold this object, and a child of a fork begins anew."""
        self.workers: dict[str, Tally] = {}
        self.errors: list[ErrorRecord] = []
        self.errors_dropped = 0
        self.problems: list[tuple[int, str, str]] = []  # (at ns, label, text) of findings that are no exceptions
        self.other_compiles = 0  # graphs compiled by threads that belong to no worker (the main thread's warm-up)
        self.other_dense_calls = 0
        self.first_dense_ns: int | None = None
        self.warm_ns: int | None = None  # since when all who take steps have had a good one

    def tally(self, worker: str, role: str = "") -> Tally:
        """The worker's account, opened at its first mention."""
        found = self.workers.get(worker)
        if found is None:
            found = self.workers.setdefault(worker, Tally(role))
        if role:
            found.role = role  # a workload may report facts of a worker before it declares it
        return found

    def good_step(self, worker: str, at_ns: int, tokens: int, loss: float | None) -> None:
        """A step of the worker ended well, on its thread."""
        tally = self.tally(worker)
        tally.steps_ok += 1
        tally.tokens += tokens
        tally.losses.append(loss)
        tally.steps.append((at_ns, tokens))
        if tally.first_good_ns is None:
            tally.first_good_ns = at_ns
            if self.warm_ns is None and all(other.first_good_ns is not None for other in self.steppers()):
                self.warm_ns = at_ns
        tally.warm.step(at_ns, self.warm_ns)

    def waited(self, worker: str, what: str, began_ns: int, ended_ns: int, whom: str = "") -> None:
        """A wait of the worker's has ended; `whom`: the one who could end it, where that was one."""
        known = self.workers.get(worker) if self.warm_ns is None else self.tally(worker) if worker else None
        if known is not None:
            known.warm.wait(what, whom, began_ns, ended_ns, self.warm_ns)

    def error(self, exc: BaseException, thread: Thread, worker: str, at_ns: int, stage: str = "") -> ErrorRecord:
        """Record an exception that left a step, a stage of the trial or a worker."""
        fault = classify(exc)
        record = ErrorRecord(
            **vars(fault),
            worker=worker,
            thread=thread.name,
            region=getattr(exc, "_harness_region", ""),
            step=thread.step,
            at_ns=at_ns,
            traceback="".join(traceback.format_exception(exc)),
            tracers=_tracers_of(fault, exc),
            consequence=bool(getattr(exc, "consequence", False)),  # e.g. a barrier that was aborted for another's sake
            stage=stage,
        )
        self.keep(record)
        return record

    def keep(self, record: ErrorRecord) -> None:
        """One more error, if there is room."""
        if len(self.errors) >= MOST_ERRORS:
            self.errors_dropped += 1
            return
        self.errors.append(record)
        if self.tell is not None:
            self.tell(record.as_json())

    def steppers(self) -> list[Tally]:
        """The drafters; of a workload without any, all workers. Who has no role is none: a fact may be of anything."""
        workers = [t for t in self.workers.values() if t.role]
        return [t for t in workers if t.role == "drafter"] or workers

    def window(self) -> tuple[float | None, float | None]:
        """(start-up seconds, real tokens a second) over the drafters, or where there are none, over all who take steps.

        Start-up: the last drafter's first good step. Throughput: tokens of the steps that ended in the window from then
        to the moment the first drafter ended its last step, in which all are warm and all still work; None when a
        drafter had no good step or when the window holds no step.
        """
        drafters = self.steppers()
        first = [t.first_good_ns for t in drafters if t.first_good_ns is not None]
        if not drafters or len(first) < len(drafters):
            return None, None
        opened = max(first)
        closed = min(t.steps[-1][0] for t in drafters)
        tokens = sum(n for t in drafters for at, n in t.steps if opened < at <= closed)
        rate = tokens / ((closed - opened) / 1e9) if tokens and closed > opened else None
        return opened / 1e9, rate


def _tracers_of(fault: Fault, exc: BaseException) -> list[dict[str, str]]:
    found = getattr(exc, "_harness_tracers", None)
    return list(found) if fault.label == "fx_error" and found else []
