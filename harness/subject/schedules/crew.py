"""Who is where: which threads run, which are held at a point, which wait for whom, and so who can still get anywhere.

The analysis is that of a deadlock detector with holds added (the and/or wait-for graphs of Knapp, *Deadlock detection in
distributed databases*, 1987): a thread is *able* if it runs, or if those whom its wait needs are able (all of a lock's
holders, one of a queue's producers). What is not in the least fixed point of that is stuck, whatever happens, for as long
as the holds last; and the holds last until the schedule says otherwise. So "this can no longer happen" is a conclusion
here, not a guess after some time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..identity import Thread, Threads
from .base import ENGINE, Member, Wait

MAIN = "MainThread"
LOOK_S = 0.05  # how often a held thread looks again, for what nobody reports (a workload's own thread that ends)


@dataclass(eq=False)
class Arrival:
    """A thread at a point."""

    who: str
    point: str
    info: str
    regions: tuple[str, ...]
    order: int  # of all arrivals
    nth: dict[Any, int] = field(default_factory=dict)  # a schedule's own counts


@dataclass(eq=False)
class Seat:
    """A thread that the schedule knows. `at`: where it is held; `wait`: what it waits for."""

    thread: Thread
    at: Arrival | None = None
    wait: Wait | None = None
    ended: bool = False

    @property
    def running(self) -> bool:
        """Neither held nor waiting nor at its end."""
        return self.at is None and self.wait is None and not self.ended


@dataclass(frozen=True)
class Link:
    """`who` waits for `what`, which `holder` would have to give; `holder` is itself stuck."""

    who: str
    what: str
    kind: str
    holder: str

    def __str__(self) -> str:
        return f"{self.who} waits for {self.what}, held by {self.holder}"


@dataclass(frozen=True)
class Chain:
    """Why a thread is stuck: waits, and at their end a thread that is held, or one of the chain again (a deadlock)."""

    links: tuple[Link, ...]
    held: str = ""  # who is held at the end, "" in a deadlock
    point: str = ""

    def __str__(self) -> str:
        end = f"{self.held} is held at {self.point}" if self.held else "which is a deadlock"
        return "; ".join([*map(str, self.links), end])


def who_is(thread: Thread) -> str:
    """The worker that a thread works for, or the thread's own name."""
    return thread.worker or thread.name


def seat_name(thread: Thread) -> str:
    """As `who_is`, and told apart from the worker's own thread: the same in every run, unlike an engine thread's name."""
    return f"{who_is(thread)}@engine" if thread.engine else who_is(thread)


class Crew:
    """All seats; everything but the constructor is called with `changed` held."""

    def __init__(self, threads: Threads) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.workers: dict[str, str] = {}  # name → role, of those that were announced
        self.ended: set[str] = set()
        self.seats: dict[int, Seat] = {}
        self.last = time.monotonic()  # of the newest report
        self._threads = threads
        self._arrivals = 0

    def announce(self, workers: Mapping[str, str]) -> None:
        """Who there will be."""
        self.workers.update(workers)

    def seat(self, thread: Thread) -> Seat:
        """The thread's seat, from now on if it had none; something was heard of it."""
        self.last = time.monotonic()
        found = self.seats.get(thread.ident)
        if found is None or found.thread is not thread:  # idents are used again
            found = self.seats[thread.ident] = Seat(thread)
        return found

    def arrive(self, thread: Thread, point: str, info: str) -> Seat:
        """The thread is at a point; the caller clears `at` when it passes."""
        seat = self.seat(thread)
        seat.wait = None  # who can come here waits for nothing, whatever was not reported
        regions = {region for other in self._threads.of_worker(thread.worker) for region in other.regions}
        self._arrivals += 1
        seat.at = Arrival(who_is(thread), point, info, tuple(regions or thread.regions), self._arrivals)
        return seat

    def end(self, thread: Thread) -> None:
        """The worker's thread is over."""
        self.seat(thread).ended = True
        self.ended.add(who_is(thread))

    def role(self, who: str) -> str:
        """The role that a worker was announced with, "" for another thread."""
        return self.workers.get(who, "")

    def live_workers(self) -> list[str]:
        """Announced, and not at their end."""
        return [name for name in self.workers if name not in self.ended]

    def seats_of(self, who: str) -> list[Seat]:
        """The live seats of a worker (its own thread's and those that work for it now) or of a thread by its name."""
        return [seat for seat in self._live() if who_is(seat.thread) == who]

    def _live(self) -> list[Seat]:
        """Threads that the workload made itself end without a word: those that Python no longer knows are gone."""
        known = threading._active  # type: ignore[attr-defined]
        return [s for s in self.seats.values() if not s.ended and (s.thread.engine or s.thread.ident in known)]

    def able(self, free: Callable[[Seat], bool]) -> set[int]:
        """Idents of the threads that can still get somewhere. `free`: whether a held thread may go on as things are."""
        live = self._live()
        serving = self._serving(live)
        able: set[int] = set()
        waiting: list[tuple[Seat, Wait, Collection[Member] | None]] = []
        for seat in live:
            if seat.at is not None:
                if free(seat):
                    able.add(seat.thread.ident)
            elif seat.wait is not None:
                waiting.append((seat, seat.wait, seat.wait.on()))
            elif not seat.thread.engine or seat.thread.ident in serving:
                able.add(seat.thread.ident)
        unstarted = any(not self._known(name) for name in self.live_workers())
        found = True
        while found:
            found = False
            for seat, wait, on in waiting:
                if seat.thread.ident in able:
                    continue
                if on is None:
                    ok = unstarted or bool(able)
                else:
                    can = [self._can(member, able, seat) for member in on]
                    ok = not can or (any(can) if wait.any_of else all(can))
                if ok:
                    able.add(seat.thread.ident)
                    found = True
        return able

    def chain(self, seat: Seat, able: set[int]) -> Chain:
        """Why `seat`, which is not able, is stuck."""
        links: list[Link] = []
        seen: set[int] = set()
        while seat.at is None and seat.thread.ident not in seen:
            seen.add(seat.thread.ident)
            assert seat.wait is not None, "neither held nor waiting: it is able"
            on = seat.wait.on()
            stuck = [other for member in on or () for other in self._seats_of(member) if other.thread.ident not in able]
            if not stuck:  # nobody in particular
                links.append(Link(seat.thread.label(), seat.wait.what, seat.wait.kind, "anybody, and nobody can come"))
                return Chain(tuple(links))
            links.append(Link(seat.thread.label(), seat.wait.what, seat.wait.kind, stuck[0].thread.label()))
            seat = stuck[0]
        if seat.at is None:
            return Chain(tuple(links))
        return Chain(tuple(links), seat.thread.label(), seat.at.point)

    def whereabouts(self) -> list[str]:
        """What each thread is doing, in words."""
        found = []
        for seat in self.seats.values():
            if seat.at is not None:
                found.append(f"{seat.thread.label()} held at {seat.at.point}")
            elif seat.wait is not None:
                found.append(f"{seat.thread.label()} waits for {seat.wait.what}")
            elif not seat.ended:
                found.append(f"{seat.thread.label()} runs")
        return found

    def _serving(self, live: Collection[Seat]) -> set[int]:
        """Idents of the engine's threads that may be running a graph; one that serves nobody is idle, not running.

        There is one for each device: only a wait for that device's, or for one of which is not known whose it is, makes it
        busy; or its worker's wait, for a graph may spread over devices.
        """
        waiting = [seat for seat in live if seat.wait is not None and seat.wait.kind == ENGINE]
        named = {member for seat in waiting if seat.wait is not None for member in seat.wait.on() or ()}
        workers = {who_is(seat.thread) for seat in waiting}
        engines = [seat.thread for seat in live if seat.thread.engine]
        return {
            thread.ident
            for thread in engines
            if thread.ident in named or thread.worker in workers or (waiting and not thread.engine_device)
        }

    def _known(self, worker: str) -> bool:
        return any(who_is(seat.thread) == worker for seat in self.seats.values())

    def _seats_of(self, member: Member) -> list[Seat]:
        if isinstance(member, int):
            seat = self.seats.get(member)
            return [] if seat is None or seat.ended else [seat]
        own = [seat for seat in self.seats_of(member) if not seat.thread.engine]
        return own or self.seats_of(member)

    def _can(self, member: Member, able: set[int], waiter: Seat) -> bool:
        """Whether a member can end a wait. One that has ended, or that nobody knows, is never taken for stuck."""
        seats = self._seats_of(member)
        return not seats or any(seat.thread.ident in able or seat is waiter for seat in seats)
