"""What a workload is, and what the harness gives it: all that a training program needs of the harness.

``Scenario`` and the settings are exported from here too, so that a workload imports this module alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from harness.core.axes import HOSTED, INDUCTOR_EAGER
from harness.core.scenario import Scenario
from harness.core.settings import PipelineSettings, parse_settings

__all__ = [
    "HOSTED",
    "INDUCTOR_EAGER",
    "Checks",
    "Context",
    "HasReference",
    "KnowsLimits",
    "NullContext",
    "PipelineSettings",
    "Scenario",
    "WaitsFor",
    "WarmsUp",
    "Worker",
    "Workload",
    "parse_settings",
]


WaitsFor = str | Sequence[str] | Callable[[], str | Sequence[str] | None] | None
"""A worker, some workers, or a function that says which: it must not wait, and says () once nobody is in the way."""


@dataclass
class Worker:
    """A unit of the workload that takes steps. The harness calls ``run`` once, on a thread named ``name``."""

    name: str  # "drafter-2"; unique in the workload
    role: str  # "drafter", "target", …
    device: str  # "cpu", "cuda:0"
    run: Callable[[], None]


class Context(Protocol):
    """What the harness gives to a workload. Every method may be called from any thread."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The ``[pipeline]`` table, with defaults filled in."""
        ...

    def region(self, name: str, worker: str, key: Hashable = None) -> AbstractContextManager[None]:
        """A named stretch of the worker's step: ``step`` ⊃ ``mask``, ``forward`` ⊃ ``attention``, ``loss``,
        ``backward``. ``key`` says what decides whether compiled code can be reused (code object, device,
        dtype, shapes, grad mode, autocast); hashable. May wait for a lock; raises when the trial is aborted.
        """
        ...

    def step(self, worker: str, tokens: int, loss: float | None) -> None:
        """A step has ended well. ``tokens``: real tokens trained on; ``loss``: None where there is none."""
        ...

    def step_failed(self, worker: str, error: BaseException) -> None:
        """A step has raised ``error``; call it where the error was caught, so that its traceback is whole."""
        ...

    def count(self, worker: str, what: str, n: int = 1) -> None:
        """Adds to a counter of the worker: skipped items, refused items, …"""
        ...

    def gradients(self, worker: str, missing: list[str]) -> None:
        """Names of trainable parameters that got no gradient in a step; empty when all did."""
        ...

    def fact(self, worker: str, name: str, value: object) -> None:
        """A JSON value that the trial's result keeps."""
        ...

    def finding(self, worker: str, label: str, text: str) -> None:
        """Something is wrong that raised no exception: ``label`` of ``harness.core.outcome.FAILURES``, ``text`` one line.

        Raises ValueError: no such label.
        """
        ...

    def waiting(
        self, worker: str, what: str, on: WaitsFor = (), *, any_of: bool = False
    ) -> AbstractContextManager[None]:
        """Around a wait of the workload's own: a queue, a barrier, a lock, a join. So a deadlock is told from work.

        ``what``: ``queue.put``, ``queue.get`` and ``barrier.wait`` are sync points too; any other text names a
        lock. ``on``: the workers who can end the wait, or a function that says who can now; none: not known. An
        attribute ``whom`` of the function names the one worker that it can ever name, for the report.
        ``any_of``: one of them is enough (the producers of a queue).

        Nothing but the wait belongs inside. The function is asked from other threads, at any moment: it takes no lock, and
        where it raises, nobody is known to wait for. A wait whose call has a time limit is part of no deadlock until that
        has passed and the thread has taken no step.
        """
        ...

    def mark(self, worker: str, name: str) -> None:
        """Pass ``mark.NAME``, a sync point of the workload's own, at which a schedule can hold this thread."""
        ...


class Workload(Protocol):
    """The code under test. ``setup`` builds everything and compiles nothing; ``stop`` unblocks every worker
    and may be called from any thread, more than once."""

    def setup(self, scenario: Scenario, ctx: Context) -> None: ...

    def workers(self) -> list[Worker]: ...

    def stop(self) -> None: ...


@runtime_checkable
class WarmsUp(Protocol):
    """A workload that can compile on the main thread before its workers start."""

    def warm_up(self, kind: str) -> None:
        """``kind``: a value of the axis ``warmup`` other than ``none``."""
        ...


@runtime_checkable
class Checks(Protocol):
    """A workload that can look for damage after its workers ended."""

    def check(self) -> list[str]:
        """One line a problem, e.g. an item that was queued and never taken; empty when all is well."""
        ...


@runtime_checkable
class KnowsLimits(Protocol):
    """A workload that knows which scenarios it cannot run on a machine."""

    def unsupported(self, scenario: Scenario) -> str:
        """Why the scenario cannot run here; "" when it can. Called before ``setup``."""
        ...


@runtime_checkable
class HasReference(Protocol):
    """A workload that can run its drafters one after another, for the check of numerics."""

    def reference(self, scenario: Scenario) -> None:
        """Called after ``setup`` and instead of starting the workers; reports its steps to the context as
        ever, under the same worker names."""
        ...


@runtime_checkable
class Nudges(Protocol):
    """A workload whose reference can tell how far training amplifies a rounding, which on a GPU no two equal runs of it do."""

    def nudge(self, change: Callable[[Iterable[Any]], None]) -> None:
        """Call ``change`` with the initial weights of each drafter: it moves every element to the next number of its dtype.

        Weights are tensors of torch; two drafters that begin alike stay alike. Called after ``setup`` and before
        ``reference``, in its further runs on CUDA.
        """
        ...


@dataclass
class NullContext:
    """A context that locks nothing and keeps what it is told: for tests, and for a workload run by itself."""

    settings: Mapping[str, Any] = field(default_factory=lambda: PipelineSettings().to_dict())
    # ("enter" | "exit", region, worker, key)
    regions: list[tuple[str, str, str, Hashable]] = field(default_factory=list)
    # worker → (tokens, loss) a step
    steps: dict[str, list[tuple[int, float | None]]] = field(default_factory=dict)
    failures: list[tuple[str, BaseException]] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    missing_gradients: dict[str, list[list[str]]] = field(default_factory=dict)  # one list a step
    facts: dict[str, dict[str, object]] = field(default_factory=dict)
    findings: list[tuple[str, str, str]] = field(default_factory=list)  # (worker, label, text)

    def __post_init__(self) -> None:
        self._mutex = threading.Lock()

    @contextmanager
    def region(self, name: str, worker: str, key: Hashable = None) -> Iterator[None]:
        """Notes that the region was entered and left, by an exception too."""
        with self._mutex:
            self.regions.append(("enter", name, worker, key))
        try:
            yield
        finally:
            with self._mutex:
                self.regions.append(("exit", name, worker, key))

    def step(self, worker: str, tokens: int, loss: float | None) -> None:
        """Appends to ``steps``."""
        with self._mutex:
            self.steps.setdefault(worker, []).append((tokens, loss))

    def step_failed(self, worker: str, error: BaseException) -> None:
        """Appends to ``failures``."""
        with self._mutex:
            self.failures.append((worker, error))

    def count(self, worker: str, what: str, n: int = 1) -> None:
        """Adds to ``counts``."""
        with self._mutex:
            self.counts.setdefault(worker, Counter())[what] += n

    def gradients(self, worker: str, missing: list[str]) -> None:
        """Appends to ``missing_gradients``."""
        with self._mutex:
            self.missing_gradients.setdefault(worker, []).append(list(missing))

    def fact(self, worker: str, name: str, value: object) -> None:
        """Sets one of ``facts``."""
        with self._mutex:
            self.facts.setdefault(worker, {})[name] = value

    def finding(self, worker: str, label: str, text: str) -> None:
        """Appends to ``findings``."""
        with self._mutex:
            self.findings.append((worker, label, text))

    def waiting(
        self, worker: str, what: str, on: WaitsFor = (), *, any_of: bool = False
    ) -> AbstractContextManager[None]:
        """Tells nobody."""
        return nullcontext()

    def mark(self, worker: str, name: str) -> None:
        """Holds nobody."""
