"""Who is told how a run goes."""

from __future__ import annotations

from typing import Protocol

from harness.control.request import Row, TrialRequest


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
