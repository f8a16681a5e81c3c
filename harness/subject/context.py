"""The workload's side of the harness: regions, steps, counts (`harness.core.workload.Context`)."""

from __future__ import annotations

import math
import operator
import sys
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from harness.core.errors import nearest
from harness.core.losses import NOT_FINITE
from harness.core.outcome import FAILURES
from harness.core.points import DOCS, REGION_NAMES
from harness.core.workload import WaitsFor
from harness.locks import Strategy

from .eventlog import EventLog, text
from .identity import Threads
from .points import SILENT, Points
from .record import Trial
from .schedules.base import BARRIER, LOCK, QUEUE, Wait

_ENTER = {name: f"region.{name}.enter" for name in REGION_NAMES}
_EXIT = {name: f"region.{name}.exit" for name in REGION_NAMES}
_KINDS = {"queue.put": QUEUE, "queue.get": QUEUE, "barrier.wait": BARRIER}


class _Region:
    """One stay in a region: the strategy's lock first, then the events, so that a wait lies outside."""

    __slots__ = ("_context", "_held", "_name", "_worker")

    def __init__(self, context: TrialContext, name: str, worker: str, held: AbstractContextManager[None]) -> None:
        self._context = context
        self._name = name
        self._worker = worker
        self._held = held

    def __enter__(self) -> None:
        context = self._context
        if context.points.on:
            context.points.trying("strategy")
        self._held.__enter__()
        thread = context.threads.current()
        thread.failing = False  # an exception that nobody told of was no failure
        thread.regions.append(self._name)
        context.log.emit("region.enter", f',"r":"{self._name}"')
        context.sample()
        if context.points.on:
            context.points.reach(_ENTER[self._name])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        context = self._context
        thread = context.threads.current()
        thread.failing = error is not None
        if context.points.on:
            context.points.reach(_EXIT[self._name])
        if error is not None:
            _mark(error, thread.region, thread.collision)
        context.sample()
        context.log.emit("region.exit", f',"r":"{self._name}"' + (',"error":1' if error is not None else ""))
        thread.regions.pop()
        return self._held.__exit__(kind, error, tb)


class _Waiting:
    """One wait of the workload's own: kept on the thread's record for the watchdog, and told to the schedule."""

    __slots__ = ("_before", "_began", "_context", "_info", "_thread", "_wait", "_whom")

    def __init__(self, context: TrialContext, wait: Wait, info: str, whom: str) -> None:
        self._context = context
        self._wait = wait
        self._info = info
        self._whom = whom  # the one worker who can end it, "" for several

    def __enter__(self) -> None:
        points = self._context.points
        if points.on and self._wait.what in DOCS:
            points.reach(self._wait.what, self._info)
        self._thread = self._context.threads.current()
        self._before = self._thread.waits
        self._thread.waits = self._wait
        self._began = self._context.log.emit("wait.enter", f',"what":{text(self._wait.what)}')
        if points.on:
            points.blocked(self._wait)

    def __exit__(self, *_: object) -> None:
        context = self._context
        self._thread.waits = self._before
        if context.points.on:
            context.points.unblocked()  # or it waits for what it did before
        ended = context.log.emit("wait.exit", f',"what":{text(self._wait.what)}')
        if self._before is None:  # a wait within a wait is a part of it
            context.trial.waited(self._thread.worker, self._wait.what, self._began, ended, self._whom)


class TrialContext:
    """Given to the workload's `setup`; safe to call from any thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        strategy: Strategy,
        log: EventLog,
        threads: Threads,
        trial: Trial,
        points: Points = SILENT,
    ) -> None:
        self.settings = settings
        self.strategy = strategy
        self.log = log
        self.threads = threads
        self.trial = trial
        self.points = points
        self.facts: dict[str, Any] = {}  # of the trial as a whole
        self._entered: set[str] = set()  # regions, by any worker
        self._keyed = False  # one came with a key
        self.sample = _nothing  # probes may set it: called at both ends of every region
        self.stepped: Callable[[str], None] | None = None  # likewise: called after each good step

    def region(self, name: str, worker: str, key: Hashable | None = None) -> AbstractContextManager[None]:
        """Region `name` of `worker`'s step; `key` says what the step would compile (strategy `compile_gate`)."""
        self._entered.add(name)
        if key is not None:
            self._keyed = True
        return _Region(self, name, worker, self.strategy.region(name, worker, key))

    def usage(self) -> dict[str, Any]:
        """Which regions were entered by any worker, and whether a key was ever given."""
        return {"regions": [name for name in REGION_NAMES if name in self._entered], "keyed": self._keyed}

    def step(self, worker: str, tokens: int, loss: float | None) -> None:
        """A good step ended: `tokens` real tokens of its item, `loss` its value. Raises TypeError for what is no number."""
        tokens, loss = operator.index(tokens), None if loss is None else float(loss)
        thread = self.threads.current()
        shown = repr(loss) if loss is not None and math.isfinite(loss) else "null"
        if loss is not None and not math.isfinite(loss):
            shown += f',"{NOT_FINITE}":"{loss}"'
        at = self.log.emit("step.done", f',"step":{thread.step},"tokens":{tokens},"loss":{shown}')
        thread.step += 1
        thread.collision, thread.failing = None, False
        self.trial.good_step(worker, at, tokens, loss)
        if self.stepped is not None:
            self.stepped(worker)

    def step_failed(self, worker: str, error: BaseException) -> None:
        """A step raised. Its traceback is kept whole; the step counts as failed."""
        tally = self.trial.tally(worker)
        thread = self.threads.current()
        _mark(error, thread.region, thread.collision)
        record = self.trial.error(error, thread, worker, self.log.now_ns())
        self.log.emit("step.failed", f',"step":{thread.step},"label":"{record.label}","error":{text(record.type)}')
        if tally.first_error_step is None:
            tally.first_error_step = thread.step
        thread.step += 1
        thread.collision, thread.failing = None, False
        tally.steps_failed += 1
        tally.losses.append(None)

    def count(self, worker: str, what: str, n: int = 1) -> None:
        """Add to a counter of the worker: items skipped, refused, left."""
        counts = self.trial.tally(worker).counts
        counts[what] = counts.get(what, 0) + n

    def gradients(self, worker: str, missing: list[str]) -> None:
        """Names of trainable parameters that got no gradient in a step; [] is fine."""
        if missing:
            self.count(worker, "steps_without_some_gradient")
            tally = self.trial.tally(worker)
            if "missing_gradients" not in tally.facts:
                tally.facts["missing_gradients"] = missing[:50]
                at = self.log.emit("grad.missing", f',"n":{len(missing)},"first":{text(missing[0])}')
                found = f"{worker}: {len(missing)} parameters got no gradient: {', '.join(missing[:4])}"
                self.trial.problems.append((at, "no_grad", found))

    def finding(self, worker: str, label: str, text: str) -> None:
        """Something is wrong that raised no exception; the worker's first finding of a label is kept.

        Raises ValueError: no trial can have that label.
        """
        if label not in FAILURES:
            hint = nearest(label, FAILURES) or f"; there are {', '.join(FAILURES)}"
            raise ValueError(f'finding: no outcome is called "{label}"{hint}')
        tally = self.trial.tally(worker)
        known = f"finding_{label}"
        if known not in tally.facts:
            tally.facts[known] = text
            at = self.log.emit("finding", f',"label":"{label}"')
            self.trial.problems.append((at, label, f"{worker}: {text}"))

    def fact(self, worker: str, name: str, value: Any) -> None:
        """A JSON value about the worker, or with worker "" about the trial, kept in the result."""
        (self.trial.tally(worker).facts if worker else self.facts)[name] = value

    def waiting(
        self, worker: str, what: str, on: WaitsFor = (), *, any_of: bool = False
    ) -> AbstractContextManager[None]:
        """Around a wait of the workload's own; see the protocol."""
        wait = Wait(what, self._asks(on, what) if callable(on) else _always(on), any_of=any_of, kind=_KINDS.get(what, LOCK))
        # A function is not asked here: it may want a lock that this thread holds.
        whom = on if isinstance(on, str) else str(getattr(on, "whom", ""))
        return _Waiting(self, wait, on if isinstance(on, str) else worker, whom)

    def mark(self, worker: str, name: str) -> None:
        """Pass the workload's own sync point `mark.NAME`."""
        self.points.reach(f"mark.{name}")


    def _asks(self, on: Callable[[], str | Iterable[str] | None], what: str) -> Callable[[], Sequence[str] | None]:
        """A function of the workload's, as the watchdog and schedules can ask it: one that raises does not know."""

        def members() -> Sequence[str] | None:
            try:
                found = on()
                return None if found is None else (found,) if isinstance(found, str) else tuple(found)
            except Exception:  # noqa: BLE001 - on whichever thread asks, which is not the one that waits
                if "waiting_raised" not in self.facts:
                    self.facts["waiting_raised"] = f"{what}: {traceback.format_exc(limit=-1).strip()}"
                    traceback.print_exc()  # into the trial's output
                return None

        return members


def _nothing() -> None:
    return None


def _always(on: str | Sequence[str] | None) -> Callable[[], Sequence[str] | None]:
    who = (on,) if isinstance(on, str) else tuple(on or ())
    return lambda: who or None


def _mark(error: BaseException, region: str, collision: list[dict[str, str]] | None) -> None:
    """Note on the exception, once, the innermost region it left and who was tracing when the check said so.

    The outermost wrapper that reaches `step_failed` may be another exception (`raise … from`): links are marked too.
    """
    if not hasattr(error, "_harness_region"):
        try:
            error._harness_region = region  # type: ignore[attr-defined]
            error._harness_tracers = collision  # type: ignore[attr-defined]
        except AttributeError:  # an exception type with __slots__ cannot be marked: it keeps its traceback
            print(f"harness: cannot mark {type(error).__name__} with its region", file=sys.stderr)
