"""The probes of a trial: made from a registry, installed in order, asked for edges and findings.

A new probe is a file here and a line in `REGISTRY`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.core.scenario import Scenario
from harness.core.waitgraph import Edge
from harness.locks import Strategy

from ..eventlog import EventLog
from ..identity import Threads
from ..points import SILENT, Points
from ..record import Trial
from .base import MakeProbe, Probe, Scope
from .compiling import CompileLockProbe, CompilesProbe
from .compiling_flag import CompilingFlagProbe
from .dense import DenseProbe
from .engine import EngineProbe
from .fx import FlagCheckProbe, FxTraceProbe
from .globals import GlobalsProbe
from .memory import MemoryProbe
from .state import POINT_PROBES
from .strategy import StrategyProbe
from .waits import WaitsProbe

REGISTRY: tuple[MakeProbe, ...] = (
    FlagCheckProbe,  # first: it must be there before any compiled callable is called
    FxTraceProbe,
    CompileLockProbe,
    CompilesProbe,
    DenseProbe,
    EngineProbe,
    CompilingFlagProbe,
    GlobalsProbe,
    WaitsProbe,
    *POINT_PROBES,
)


class Probes:
    """All probes of one trial."""

    def __init__(self, log: EventLog, threads: Threads, trial: Trial, points: Points = SILENT) -> None:
        self._log = log
        self._threads = threads
        self._trial = trial
        self._points = points
        self._probes: list[Probe] = []
        self._strategy: StrategyProbe | None = None
        self._memory: MemoryProbe | None = None
        self.status: dict[str, str] = {}

    def install(self, scenario: Scenario, *, enabled: bool) -> None:
        """Install every probe, or none; `status` says of each that has a part: ok, off, or unavailable and why."""
        scope = Scope(self._log, self._threads, self._trial, scenario, self._points)
        self._strategy = StrategyProbe(scope)
        self._memory = MemoryProbe(scope)
        self._probes = [self._strategy, *(make(scope) for make in REGISTRY), self._memory]
        for probe in self._probes:
            status = probe.install() if enabled or probe is self._strategy else "off"
            if status:  # else it has nothing to do in this trial
                self.status[probe.name] = status

    def begin(self) -> None:
        """The workload is built; nothing of it runs yet."""
        for probe in self._probes:
            if self.status.get(probe.name) == "ok":
                probe.begin()

    def sample(self) -> None:
        """At both ends of every region."""
        for probe in self._probes:
            probe.sample()

    def place(self, devices: dict[str, str]) -> None:
        """Which worker runs on which device."""
        assert self._memory is not None
        self._memory.place(devices)

    @property
    def stepped(self) -> Callable[[str], None] | None:
        """To be called after each good step of a worker; None when nobody wants to know."""
        on = self._memory is not None and self.status.get(self._memory.name) == "ok"
        return self._memory.stepped if on and self._memory is not None else None

    def memory(self) -> dict[str, dict[str, Any]]:
        """Peaks by device."""
        on = self._memory is not None and self.status.get(self._memory.name) == "ok"
        return self._memory.peaks() if on and self._memory is not None else {}

    def use(self, strategy: Strategy) -> None:
        """The strategy whose waits are to be known."""
        assert self._strategy is not None
        self._strategy.strategy = strategy

    def lock_event(self, event: str, lock: str, worker: str) -> None:
        """As `harness.locks.Observer`."""
        assert self._strategy is not None
        self._strategy.event(event, lock, worker)

    def edges(self) -> list[Edge]:
        """Who waits for whom, by all probes."""
        return [edge for probe in self._probes for edge in probe.edges()]

    def compiling(self) -> bool:
        """Whether any thread is inside a compile."""
        return any(thread.compiling for thread in list(self._threads.by_ident.values()))

    def after(self) -> list[tuple[str, str]]:
        """Findings of all probes, as (outcome label, text)."""
        return [finding for probe in self._probes for finding in probe.after()]

    def locks(self) -> dict[str, dict[str, float]]:
        """The strategy's sums by lock."""
        return {} if self._strategy is None else self._strategy.sums()


__all__ = ["Probes"]
