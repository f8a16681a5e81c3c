"""What has ended, what runs and what is left of a run: the numbers that every display of its progress shows."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

from harness.core.outcome import is_failure
from harness.core.scenario import Scenario
from harness.report import wording
from harness.report.left_guess import LeftGuess


class Started(Protocol):
    """What is read of a trial that starts."""

    @property
    def trial_id(self) -> str: ...


class StartedReference(Started, Protocol):
    """What is read of a reference that starts."""

    @property
    def scenario(self) -> Scenario: ...


class Progress:
    """Counts; says nothing. The other displays build on it. `clock` gives seconds.

    A trial is done when it has ended, also where its row waits for a reference. References are no trials.
    """

    def __init__(self) -> None:
        self.total = self.done = self.failed = self.already = 0
        self.running: dict[str, float] = {}
        self.running_references: dict[str, tuple[str, float]] = {}  # id → configuration, since when
        self.waiting: dict[str, tuple[str, ...]] = {}  # trial → outcomes, until its references have come
        self.plans_done = self.plans_asked = 0
        self.stopping = False
        self.varying: Sequence[str] = ()  # the axes that scenarios are named by; of a bisection not known
        self._unchecked: set[str] = set()
        self.clock = time.monotonic
        self._left = LeftGuess()
        self._mutex = threading.RLock()  # the live display draws from a thread of its own

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def begin(self, total: int, already: int) -> None:
        """`total` trials are to run; `already` were finished before."""
        with self._mutex:
            self.total, self.already = total, already

    def plans(self, done: int, asked: int) -> None:
        """So many hazards' plans have answered, of those that a bisection has asked so far: no trials of its scenarios."""
        with self._mutex:
            self.plans_done, self.plans_asked = done, asked

    def references(self, count: int) -> None:
        """So many references are to run as well; fewer, if negative, than was said before."""
        with self._mutex:
            self._left.references += count

    def reference_started(self, request: StartedReference) -> None:
        """A reference starts."""
        with self._mutex:
            self.running_references[request.trial_id] = (request.scenario.id, self.clock())
            self._left.at_once(len(self.running) + len(self.running_references))

    def reference_ended(self, row: Mapping[str, Any]) -> None:
        """A reference has ended."""
        with self._mutex:
            _, since = self.running_references.pop(row["trial"])
            self._left.reference_took(self.clock() - since)
        if row["outcome"] == "skipped":
            why = row.get("reason") or "the serial reference was skipped"
            if why not in self._unchecked:
                self._unchecked.add(why)
                self.note(f"losses are not checked: {why}")

    def started(self, request: Started) -> None:
        """A trial starts."""
        with self._mutex:
            self.running[request.trial_id] = self.clock()
            self._left.at_once(len(self.running) + len(self.running_references))

    def waits(self, row: Mapping[str, Any]) -> None:
        """A trial has ended before its reference."""
        with self._mutex:
            self._count(row)
            self.waiting[row["trial"]] = tuple(row["outcomes"])

    def ended(self, row: Mapping[str, Any]) -> None:
        """A trial has ended, or its reference has, or it was skipped."""
        with self._mutex:
            before = self.waiting.pop(row["trial"], None)
            if before is None:
                self._count(row)
            else:
                self.failed += _failed(row["outcomes"]) and not _failed(before)

    def _count(self, row: Mapping[str, Any]) -> None:
        since = self.running.pop(row["trial"], None)
        if row["outcome"] not in ("skipped", "interrupted"):
            self.done += 1
            self.failed += _failed(row["outcomes"])
            if since is not None:
                self._left.trial_took(self.clock() - since)

    def interrupting(self) -> None:
        """Ctrl-C was pressed. Called from a signal handler."""
        self.stopping = True

    def note(self, text: str) -> None:
        """Something the user should know."""

    def seconds_left(self) -> float | None:
        """A guess by the trials so far; None before the first has ended, and when nothing is left."""
        now = self.clock()
        return self._left.seconds(
            self.total - self.done,
            [now - since for since in self.running.values()],
            [now - since for _, since in self.running_references.values()],
        )

    def counts(self) -> str:
        """`12/60 trials, 3 failed, about 2 min left`; before the first trial of a bisection `3 of 7 plans carried out`."""
        if self.plans_asked and not self.total:
            return f"{self.plans_done} of {wording.plural(self.plans_asked, 'plan')} carried out"
        said = f"{self.done}/{wording.plural(self.total, 'trial')}, {self.failed} failed"
        if self.already:
            said += f", {self.already} from before"
        left = self.seconds_left()
        return said + (f", about {wording.duration(left)} left" if left is not None else "")

    def waits_said(self) -> str:
        """`2 trials have ended and wait for a reference`, or ""."""
        if not self.waiting:
            return ""
        one = len(self.waiting) == 1
        verbs = "has ended and waits" if one else "have ended and wait"
        return f"{wording.plural(len(self.waiting), 'trial')} {verbs} for a reference"

    def kept_said(self) -> list[str]:
        """What becomes of trials whose reference does not come in this run, in lines; none where none waits."""
        if not self.waiting:
            return []
        labels = Counter(outcomes[0] for outcomes in self.waiting.values())
        seen = ", ".join(f"{count} × {label}" for label, count in labels.items())
        return [f"note: {self.waits_said()}: --resume judges them", f"  seen so far: {seen}"]


def _failed(labels: Iterable[str]) -> bool:
    return any(is_failure(label) for label in labels)
