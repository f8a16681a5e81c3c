"""What a probe is: code in the subject that observes one thing and writes events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.core.scenario import Scenario
from harness.core.waitgraph import Edge
from harness.torch_internals.base import Availability

from ..eventlog import EventLog
from ..identity import Threads
from ..points import SILENT, Points
from ..record import Trial


@dataclass(frozen=True)
class Scope:
    """What a probe may use: where events go, who threads are, the trial's account, whom to tell of sync points."""

    log: EventLog
    threads: Threads
    trial: Trial
    scenario: Scenario
    points: Points = SILENT


class Probe(Protocol):
    """One thing observed. `install` says "ok" or "unavailable: why"; the others have nothing to say by default."""

    name: str

    def install(self) -> str:
        """Begin to observe. Never raises for a missing hook."""

    def begin(self) -> None:
        """The workload is built; nothing of it runs yet."""

    def edges(self) -> list[Edge]:
        """Who waits for whom, by this probe's knowledge; called by the watchdog."""

    def sample(self) -> None:
        """Called at both ends of every region, on the thread that is there."""

    def after(self) -> list[tuple[str, str]]:
        """(outcome label, text) of findings once all workers have ended."""


class Quiet:
    """The parts of a probe that most leave out."""

    def begin(self) -> None:
        """Nothing."""

    def edges(self) -> list[Edge]:
        """None."""
        return []

    def sample(self) -> None:
        """Nothing."""

    def after(self) -> list[tuple[str, str]]:
        """None."""
        return []


MakeProbe = Callable[[Scope], Probe]


def said(availability: Availability) -> str:
    """An adapter's answer as a probe's status."""
    return "ok" if availability.ok else f"unavailable: {availability.reason}"
