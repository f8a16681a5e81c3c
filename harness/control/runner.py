"""Scenarios × repeats → trials, handed to an executor; rows to the run folder as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from harness.control.caches import WarmCaches
from harness.control.recovery import drop, recover, set_aside, take_back
from harness.control.references import References
from harness.control.request import Executor, Row, TrialRequest
from harness.control.rows import skipped_row
from harness.control.rundir import RunFolder
from harness.core.matrix import Matrix
from harness.core.scenario import Scenario


class Listener(Protocol):
    """Is told how a run goes; it shows progress."""

    def begin(self, total: int, already: int) -> None:
        """`total` trials are to run; `already` were finished before, by a run that is being resumed."""

    def references(self, count: int) -> None:
        """So many references are to run as well; fewer, if negative, than was said before."""

    def reference_started(self, request: TrialRequest) -> None:
        """A reference starts."""

    def reference_ended(self, row: Row) -> None:
        """A reference has ended, however it did."""

    def started(self, request: TrialRequest) -> None:
        """A trial starts."""

    def waits(self, row: Row) -> None:
        """A trial has ended before its reference has; what `ended` is told later may have a label more."""

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
    references_first: bool = False,
) -> bool:
    """Run the plan; True when it was interrupted.

    `held` keeps a Ctrl-C out while a row is written. With `references`, each trial's losses are held against a serial
    run of its configuration, made by the same executor beside the trials, or, with `references_first`, before them, so that
    they disturb no measurement; with `caches`, warm ones are filled first.

    A row whose reference has not come is written once it has, and a reference whose trials have all ended without a loss to
    hold against it (out of memory, say) is not made. Rows that an interrupt finds waiting are left for the
    run that resumes: written now they would be final, and nobody would ever know whether their numbers were right.
    """
    rows = _Rows(plan, folder, listener, held, references)

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
        claimed = {} if references is None else references.claim(needing)
        rows.settle()  # of what is recovered, that whose reference had come
        listener.references(len(claimed))
        if references_first and claimed:
            executor.run(list(claimed.values()), on_start, on_row)
            claimed = {}
        if together := _together(needing, trials, claimed, rows.key_of):
            executor.run(together, on_start, on_row)
        for request in needing:
            if references is not None and rows.waits(request):  # another process makes its reference, or has made none
                left = list(references.claim([request], wait=True).values())
                rows.settle()
                if left:
                    executor.run(left, on_start, on_row)
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


class _Rows:
    """Appends each trial's row once, whole and judged; until its reference has come it is set aside."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        listener: Listener,
        held: Callable[[], AbstractContextManager[None]],
        references: References | None,
    ) -> None:
        self._folder, self._listener, self._held, self._references = folder, listener, held, references
        self._keys = {
            request.trial_id: "" if references is None else references.key_of(request) for request in plan.requests
        }
        self._written: set[str] = set()
        self._waiting: dict[str, str] = {}  # trial → key of its reference, in the order in which they ended

    def has(self, trial_id: str) -> bool:
        """Whether that is a trial of the plan, and no reference."""
        return trial_id in self._keys

    def key_of(self, request: TrialRequest) -> str:
        """The reference that a trial of the plan is held against; "" where there are none."""
        return self._keys[request.trial_id]

    def need(self, key: str) -> bool:
        """Whether that reference can still be of use: a trial that is held against it has no row yet."""
        return any(of == key and trial not in self._written for trial, of in self._keys.items())

    def waits(self, request: TrialRequest) -> bool:
        """Whether the trial has ended and its row is set aside."""
        return request.trial_id in self._waiting

    def take(self, row: Row) -> None:
        """A trial has ended, or was skipped."""
        trial = row["trial"]
        if self._references is None or trial not in self._keys:
            self._write(row)
            return
        row["reference"] = self._keys[trial]
        if not self._references.awaits(row):
            self._references.judge(row)
            self._write(row)
            return
        with self._held():
            set_aside(self._folder, row)
            self._waiting[trial] = self._keys[trial]
            self._listener.waits(row)

    def take_reference(self, row: Row) -> None:
        """A reference has ended: what has waited for it can be judged."""
        assert self._references is not None
        with self._held():
            self._references.ended(row)
            self._listener.reference_ended(row)
        self.settle()

    def settle(self, *, last: bool = False) -> None:
        """Write what waits for references that are known; with `last` all the rest as well: no reference will come."""
        for trial, key in list(self._waiting.items()):
            assert self._references is not None
            if last or self._references.knows(key):
                row = take_back(self._folder, trial)
                self._references.judge(row)
                self._write(row)

    def _write(self, row: Row) -> None:
        with self._held():
            self._folder.append(row)
            self._written.add(row["trial"])
            if self._waiting.pop(row["trial"], None) is not None:
                drop(self._folder, row["trial"])
            self._listener.ended(row)
