"""Threads under control, for the tests of `harness.locks`: every wait has a limit, no thread outlives its test."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from harness.locks import LockState, Strategy, make_strategy

LIMIT = 20.0  # seconds; reached only when something is broken


class Log:
    """An observer that keeps what it is told, and lets a test wait until it has been told something."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []
        self._told = threading.Condition()

    def __call__(self, event: str, lock: str, worker: str) -> None:
        with self._told:
            self.events.append((event, lock, worker))
            self._told.notify_all()

    def expect(self, event: str, worker: str, times: int = 1) -> None:
        """Returns once `worker` has told `event` so many times."""

        def seen() -> bool:
            return sum(e == event and w == worker for e, _, w in self.events) >= times

        with self._told:
            assert self._told.wait_for(seen, LIMIT), f"no {event} of {worker} in {self.events}"

    def of(self, worker: str) -> list[str]:
        with self._told:
            return [e for e, _, w in self.events if w == worker]


class Puppet:
    """A thread that does one thing at a time, when told to."""

    def __init__(self, name: str) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._obey, name=name, daemon=True)
        self.thread.start()

    def _obey(self) -> None:
        while (order := self._orders.get()) is not None:
            action, future = order
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001  # the test gets it from the future
                future.set_exception(error)

    def begin(self, action: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._orders.put((action, future))
        return future

    def do(self, action: Callable[[], Any]) -> Any:
        """The action's result. Fails if it does not come: the thread is blocked where it must not be."""
        return self.begin(action).result(LIMIT)

    def end(self) -> None:
        self._orders.put(None)


class Stage:
    """A strategy and a puppet for each thread that a test names; ends them all, whatever happened.

    A puppet is called after its worker; "a!" is a second thread, an engine thread, of worker "a".
    """

    def __init__(self, name: str, workers: Sequence[str] = ("a", "b", "c"), owner: str = "worker") -> None:
        self.log = Log()
        self.strategy: Strategy = make_strategy(
            name, workers=list(workers), owner=owner, observer=self.log, warn=False
        )
        self._puppets: dict[str, Puppet] = {}
        self._inside: dict[tuple[str, str], Any] = {}

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.strategy.abort()
        for puppet in self._puppets.values():
            puppet.end()
        for puppet in self._puppets.values():
            puppet.thread.join(LIMIT)
        alive = [name for name, puppet in self._puppets.items() if puppet.thread.is_alive()]
        assert not alive or kind is not None, f"abort() left {alive} waiting"

    def puppet(self, who: str) -> Puppet:
        if who not in self._puppets:
            self._puppets[who] = Puppet(who)
        return self._puppets[who]

    def begin_enter(self, who: str, region: str, key: object = None) -> Future[Any]:
        def enter() -> None:
            manager = self.strategy.region(region, who.rstrip("!"), key)
            manager.__enter__()
            self._inside[who, region] = manager

        return self.puppet(who).begin(enter)

    def enter(self, who: str, *regions: str, key: object = None) -> None:
        """Must not wait."""
        for region in regions:
            self.begin_enter(who, region, key).result(LIMIT)

    def blocked(self, who: str, region: str, key: object = None) -> Future[Any]:
        """Enters, and must wait: it says so and is seen to."""
        worker = who.rstrip("!")
        before = self.log.of(worker).count("wait")
        entering = self.begin_enter(who, region, key)
        self.log.expect("wait", worker, before + 1)
        assert not entering.done()
        assert worker in self.state().waiters
        return entering

    def begin_leave(self, who: str, region: str, error: BaseException | None = None) -> Future[Any]:
        manager = self._inside.pop((who, region))
        kind = None if error is None else type(error)
        return self.puppet(who).begin(lambda: manager.__exit__(kind, error, None))

    def leave(self, who: str, *regions: str, error: BaseException | None = None) -> None:
        """Must not wait, nor swallow the exception."""
        for region in regions:
            assert not self.begin_leave(who, region, error).result(LIMIT)

    def through(self, who: str, *regions: str, key: object = None) -> None:
        """One region after another, each left before the next; none may wait."""
        for region in regions:
            self.enter(who, region, key=key)
            self.leave(who, region)

    def state(self, name: str = "") -> LockState:
        """The state of the lock of that name, or of the first."""
        return next(state for state in self.strategy.wait_graph() if name in ("", state.name))

    def holders(self) -> tuple[str, ...]:
        return self.state().holders
