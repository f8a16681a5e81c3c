"""The rows of a run on their way to its results: each is judged first, and is set aside until it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from harness.control.listener import Listener
from harness.control.recovery import drop, set_aside, take_back
from harness.control.references import References
from harness.control.request import Row, TrialRequest
from harness.control.rundir import RunFolder


class Rows:
    """Appends each trial's row once, whole and judged; until its reference has come it is set aside."""

    def __init__(
        self,
        requests: Iterable[TrialRequest],
        folder: RunFolder,
        listener: Listener,
        held: Callable[[], AbstractContextManager[None]],
        references: References | None,
    ) -> None:
        self._folder, self._listener, self._held, self._references = folder, listener, held, references
        self._keys = {
            request.trial_id: "" if references is None else references.key_of(request) for request in requests
        }
        self._written: set[str] = set()
        self._waiting: dict[str, tuple[str, ...]] = {}  # trial → keys that it waits for, in the order in which they ended

    def has(self, trial_id: str) -> bool:
        """Whether that is a trial of the plan, and no reference."""
        return trial_id in self._keys

    def key_of(self, request: TrialRequest) -> str:
        """The reference that a trial of the plan is held against; "" where there are none."""
        return self._keys[request.trial_id]

    def need(self, key: str) -> bool:
        """Whether that reference can still be of use: a trial that is held against it, or in doubt, has no row yet."""
        return any(key in keys for keys in self._waiting.values()) or any(
            of == key and trial not in self._written for trial, of in self._keys.items()
        )

    def waits(self, request: TrialRequest) -> bool:
        """Whether the trial has ended and its row is set aside."""
        return request.trial_id in self._waiting

    def awaits(self, request: TrialRequest) -> tuple[str, ...]:
        """Keys of the references that it waits for: its first, or, in doubt, further runs of it; none where it has a row."""
        return self._waiting.get(request.trial_id, ())

    def take(self, row: Row) -> None:
        """A trial has ended, or was skipped."""
        trial = row["trial"]
        if self._references is None or trial not in self._keys:
            self._write(row)
            return
        row["reference"] = self._keys[trial]
        awaited = self._references.awaited(row)
        if not awaited:
            self._references.judge(row)
            self._write(row)
            return
        with self._held():
            set_aside(self._folder, row)
            self._waiting[trial] = awaited
            self._listener.waits(row)

    def take_reference(self, row: Row) -> None:
        """A reference has ended: what has waited for it can be judged."""
        assert self._references is not None
        with self._held():
            self._references.ended(row)
            self._listener.reference_ended(row)
        self.settle()

    def settle(self, *, last: bool = False) -> None:
        """Write what waits for references that are known; with `last` all the rest as well: no reference will come.

        What its reference puts in doubt goes on waiting, for further runs of it.
        """
        for trial, keys in list(self._waiting.items()):
            assert self._references is not None
            if not (last or all(map(self._references.knows, keys))):
                continue
            row = take_back(self._folder, trial)
            awaited = self._references.awaited(row)
            if awaited and not last:
                self._waiting[trial] = awaited
                continue
            self._references.judge(row)
            self._write(row)

    def _write(self, row: Row) -> None:
        with self._held():
            self._folder.append(row)
            self._written.add(row["trial"])
            if self._waiting.pop(row["trial"], None) is not None:
                drop(self._folder, row["trial"])
            self._listener.ended(row)
