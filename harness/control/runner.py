"""Scenarios × repeats → trials, handed to an executor; rows to the run folder as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from harness.control.caches import WarmCaches
from harness.control.judging import Rows
from harness.control.listener import Listener
from harness.control.recovery import recover
from harness.control.references import References
from harness.control.request import Executor, Row, TrialRequest
from harness.control.rows import skipped_row
from harness.control.rundir import RunFolder
from harness.core.matrix import Matrix
from harness.core.scenario import Scenario


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
    references_first: bool = False,
) -> bool:
    """Run the plan; True when it was interrupted.

    `held` keeps a Ctrl-C out while a row is written. With `references`, each trial's losses are held against a serial
    run of its configuration, made by the same executor beside the trials, or, with `references_first`, before them, so that
    they disturb no measurement; with `caches`, warm ones are filled first.

    A row whose reference has not come is written once it has, and a reference whose trials have all ended without a loss to
    hold against it (out of memory, say) is not made. Trials whose losses leave their reference are in doubt and wait once
    more: it is run again when all trials have ended, as often as they need. Rows that an interrupt finds waiting are left for
    the run that resumes: written now they would be final, and nobody would ever know whether their numbers were right.
    """
    rows = Rows(plan.requests, folder, listener, held, references)

    def on_start(request: TrialRequest) -> bool:
        if rows.has(request.trial_id):
            folder.fresh_trial_folder(request.trial_id)
            listener.started(request)
            return True
        assert references is not None
        if not rows.need(references.key_of_reference(request)):
            references.abandon(request)
            listener.references(-1)
            return False
        listener.reference_started(request)
        return True

    def on_row(row: Row) -> None:
        if rows.has(row["trial"]):
            rows.take(row)
        else:
            rows.take_reference(row)

    def run_left(needs: Mapping[str, TrialRequest], *, wait: bool = False) -> None:
        """The references that are still to be made, and nothing beside them."""
        assert references is not None
        left = list(references.claim(needs, wait=wait).values())
        rows.settle()
        listener.references(len(left))
        if left:
            executor.run(left, on_start, on_row)

    try:
        listener.begin(len(plan.requests), plan.already)
        for row in plan.skipped:
            rows.take(row)
        trials: dict[str, TrialRequest] = {}
        for request in plan.requests:
            recovered = recover(request)
            if recovered is None:
                trials[request.trial_id] = request
            else:
                rows.take(recovered)
        if caches is not None:
            caches.prime(trials.values(), executor)
            trials = {name: caches.use(request) for name, request in trials.items()}
        needing = [request for request in plan.requests if request.trial_id in trials or rows.waits(request)]
        claimed = {} if references is None else references.claim(references.firsts(needing))
        rows.settle()  # of what is recovered, that whose reference had come
        listener.references(len(claimed))
        if references_first and claimed:
            executor.run(list(claimed.values()), on_start, on_row)
            claimed = {}
        if together := _together(needing, trials, claimed, rows.key_of):
            executor.run(together, on_start, on_row)
        tried: set[str] = set()
        while needs := {key: request for request in needing for key in rows.awaits(request) if key not in tried}:
            tried.update(needs)
            run_left(needs)
            for key, request in needs.items():
                if key in rows.awaits(request):  # another process makes it, or has made none
                    run_left({key: request}, wait=True)
        rows.settle(last=True)
    except KeyboardInterrupt:
        rows.settle()
        return True
    finally:
        if references is not None:
            references.release()
    return False


def _together(
    requests: Iterable[TrialRequest],
    trials: Mapping[str, TrialRequest],
    references: Mapping[str, TrialRequest],
    key_of: Callable[[TrialRequest], str],
) -> list[TrialRequest]:
    """Trials in their order, and behind the first that needs it each reference: neither keeps the other from starting."""
    left = dict(references)
    pairs = ((trials.get(request.trial_id), left.pop(key_of(request), None)) for request in requests)
    return [found for pair in pairs for found in pair if found is not None]
