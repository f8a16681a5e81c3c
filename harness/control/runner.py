"""Scenarios × repeats → trials, handed to an executor; rows to the run folder as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from harness.control.caches import WarmCaches
from harness.control.references import References
from harness.control.request import Executor, Row, TrialRequest
from harness.control.rows import Ending, skipped_row, trial_row
from harness.control.rundir import RunFolder
from harness.core.matrix import Matrix
from harness.core.scenario import Scenario


class Listener(Protocol):
    """Is told how a run goes; it shows progress."""

    def begin(self, total: int, already: int) -> None:
        """`total` trials are to run; `already` were finished before, by a run that is being resumed."""

    def started(self, request: TrialRequest) -> None:
        """A trial starts."""

    def ended(self, row: Row) -> None:
        """A trial has ended, or was skipped, and its row is on disk."""

    def interrupting(self) -> None:
        """Ctrl-C was pressed for the first time. Called from a signal handler."""


@dataclass(frozen=True)
class Plan:
    """What is to be done: `requests` in order, and for each scenario that cannot run here its row."""

    requests: tuple[TrialRequest, ...]
    skipped: tuple[Row, ...]
    already: int


def trial_id(scenario: Scenario, repeat: int) -> str:
    """The name of a trial, and of its folder."""
    return f"{scenario.id}--r{repeat}"


def make_plan(
    matrix: Matrix,
    scenarios: Iterable[Scenario],
    folder: RunFolder,
    *,
    repeats: int,
    timeout_s: float | None = None,
    skip: Callable[[Scenario], str] = lambda scenario: "",
) -> Plan:
    """Repeat 0 of every scenario first, then repeat 1: what drifts with time then touches all of them alike.

    Trials that `folder` knows as finished are left out. `timeout_s` goes before the matrix's.
    """
    limits: dict[str, Any] = {}
    timeout = matrix.timeout_s if timeout_s is None else timeout_s
    if timeout is not None:
        limits["timeout_s"] = timeout
    if matrix.hang_timeout_s is not None:
        limits["hang_timeout_s"] = matrix.hang_timeout_s
    requests: list[TrialRequest] = []
    skipped: list[Row] = []
    already = 0
    chosen = [(scenario, skip(scenario)) for scenario in scenarios]
    for repeat in range(repeats):
        for scenario, reason in chosen:
            name = trial_id(scenario, repeat)
            if name in folder.finished:
                already += 1
                continue
            request = TrialRequest(
                name, scenario, repeat, folder.trial_folder(name), pipeline=matrix.pipeline, **limits
            )
            if not reason:
                requests.append(request)
            elif repeat == 0:
                skipped.append(skipped_row(request, reason))
    return Plan(tuple(requests), tuple(skipped), already)


def carry_out(
    plan: Plan,
    folder: RunFolder,
    executor: Executor,
    listener: Listener,
    *,
    held: Callable[[], AbstractContextManager[None]] = nullcontext,
    references: References | None = None,
    caches: WarmCaches | None = None,
) -> bool:
    """Run the plan; True when it was interrupted.

    `held` keeps a Ctrl-C out while a row is written. With `references`, each trial's losses are held against a serial
    run of its configuration, which is made first; with `caches`, warm ones are filled first.
    """
    keys = {} if references is None else {request.trial_id: references.key_of(request) for request in plan.requests}

    def on_start(request: TrialRequest) -> None:
        folder.fresh_trial_folder(request.trial_id)
        listener.started(request)

    def on_row(row: Row) -> None:
        if references is not None and row["trial"] in keys:
            row["reference"] = keys[row["trial"]]
            references.judge(row)
        with held():
            folder.append(row)
            listener.ended(row)

    try:
        listener.begin(len(plan.requests), plan.already)
        if references is not None:
            references.prepare(plan.requests, executor)
        if caches is not None:
            caches.prime(plan.requests, executor)
        for row in plan.skipped:
            on_row(row)
        waiting = []
        for request in plan.requests:
            recovered = _recover(request)
            if recovered is None:
                waiting.append(request if caches is None else caches.use(request))
            else:
                on_row(recovered)
        if waiting:
            executor.run(waiting, on_start, on_row)
    except KeyboardInterrupt:
        return True
    return False


def _recover(request: TrialRequest) -> Row | None:
    """The row of a trial that had ended when the run was killed, but whose row had not been written.

    `result.json` is written last and as a whole, so the trial is finished; how its process ended is not
    known.
    """
    result = request.folder / "result.json"
    try:
        seconds = result.stat().st_mtime - (request.folder / "spec.json").stat().st_mtime
        spec: Mapping[str, Any] = json.loads((request.folder / "spec.json").read_text("utf-8"))
        json.loads(result.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if spec.get("trial") != request.trial_id or spec.get("scenario") != request.scenario.to_dict():
        return None
    row = trial_row(request, Ending(0, "exited", max(0.0, seconds), None))
    row["exit"] = {"status": None, "signal": None, "how": "not seen: the run was killed"}
    return row
