"""`directed`: brings about the order of a plan, or finds out why it cannot be had.

After race-directed testing (Park and Sen, *Race directed random testing of concurrent programs*, PLDI 2008: hold a thread
at one half of a potential race until another is at the other half). Departures: the order is given, not found, so nothing
is random; a hold does not end after some time but when the order is complete, or when it is known (`crew`) that the next
step can no longer happen; and the answer says why.

A step counts as made, for gates and for the next step, when its thread has come to its next point (of any kind), waits or
has ended: what lies between a point and the next belongs to the step. Else the thread that is let go first and the one
that is let go next would race for what the plan wants in order.

One trial makes up to K attempts: an attempt that is excluded or missed lets everybody go and starts over with the next
occurrence of the first step. Nobody is held once the plan is decided.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from harness.core.ordermark import keep
from harness.core.plan import EXCLUDED, OCCURRENCES, ORDER_DONE, UNDECIDED, UNREACHABLE, Plan, PlanError
from harness.core.recording import Passed
from harness.core.schedulespec import ScheduleSpec

from ..identity import Thread
from .base import QUEUE, Schedule, Setting, Wait
from .crew import LOOK_S, Arrival, Chain, Crew, Seat, seat_name
from .order import Order
from .recorder import Recorder
from .witness import Witness

SILENT_S = 20.0  # no report from any thread while one is held: undecided
OVERALL_S = 120.0  # from the first hold of a trial


class Directed:
    """See the module's text. The crew's lock guards all state; held threads wait on its condition."""

    def __init__(self, plan: Plan, setting: Setting) -> None:
        self._plan = plan
        self._crew = Crew(setting.threads)
        self._order = Order(plan, self._crew)
        self._folder = setting.folder
        self._now_ns = setting.now_ns
        self._most = int(setting.extra.get("occurrences", OCCURRENCES))
        self._silent_s = float(setting.extra.get("silent_s", SILENT_S))
        self._overall_s = float(setting.extra.get("overall_s", OVERALL_S))
        self._listed = {step.point for step in plan.steps} | {gate.point for gate in plan.gates}
        self._listed |= {step.before for step in plan.steps if step.before}
        self._witness = Witness()
        self._recorder = Recorder(setting)
        self._attempts: list[dict[str, Any]] = []
        self._decided: dict[str, Any] | None = None
        self._first_hold = 0.0
        self._held_ns = 0

    # what the subject tells

    def begin(self, workers: Mapping[str, str]) -> None:
        """The candidates for the roles."""
        with self._crew.changed:
            self._crew.announce(workers)
            self._recorder.workers = dict(workers)
            self._judge()

    def thread_started(self, thread: Thread) -> None:
        """It runs."""
        with self._crew.changed:
            self._crew.seat(thread)

    def thread_ended(self, thread: Thread) -> None:
        """Its role may be out of reach now."""
        with self._crew.changed:
            self._settle(thread)
            self._crew.end(thread)
            self._judge()

    def trying(self, lock: str, thread: Thread) -> None:
        """Only points are ordered."""

    def blocked(self, thread: Thread, wait: Wait) -> None:
        """Perhaps for good, if whom it waits for is held."""
        if self._decided is not None:
            return
        with self._crew.changed:
            self._settle(thread)
            self._crew.seat(thread).wait = wait
            self._judge()

    def unblocked(self, thread: Thread) -> None:
        """It runs again."""
        if self._decided is not None:
            return
        with self._crew.changed:
            self._crew.seat(thread).wait = thread.waits

    def reach(self, point: str, thread: Thread, info: str) -> None:
        """Pass, be held, or be the next step."""
        if self._decided is not None:
            return
        if point not in self._listed and self._order.unsettled is not thread:
            self._crew.last = time.monotonic()
            return
        with self._crew.changed:
            self._settle(thread)
            if point not in self._listed:
                return
            seat = self._crew.arrive(thread, point, info)
            assert seat.at is not None
            missed = self._order.missed(seat.at)
            if missed is not None:
                self._end_attempt(UNREACHABLE, f"{seat.at.who} came to {point} without {missed}", retry=True)
            self._order.count(seat.at)
            self._pass(seat, seat.at)
            seat.at = None  # `wait` stays None, too: where the point lies in one, that may be over, and must exclude nothing

    @property
    def hopeless(self) -> bool:
        """Excluded or unreachable; silence is neither."""
        decided = self._decided
        return decided is not None and decided["order"] in (EXCLUDED, UNREACHABLE)

    def finish(self) -> dict[str, Any]:
        """The order's ending, and how it came about. Lets go of everybody."""
        with self._crew.changed:
            if self._decided is None:
                self._decide(*self._unfinished())
            assert self._decided is not None
            return {
                "kind": "directed",
                **self._decided,
                "occurrences": self._most,
                "attempts": list(self._attempts),
                "witness": list(self._witness.lines),
                "held_s": round(self._held_ns / 1e9, 4),
                "recording": self._recorder.write(bindings=self._decided["bindings"]),
            }

    # arrivals; all below is called with the lock held

    def _pass(self, seat: Seat, at: Arrival) -> None:
        held_since = 0
        while self._decided is None:
            verdict = self._order.verdict(at)
            if verdict.bind:
                self._order.bound[verdict.bind] = at.who
            if not verdict.hold:
                if verdict.step >= 0:
                    self._take(at, seat.thread, held_since)
                elif held_since:
                    self._witness.add(at, seat.thread, self._now_ns(), event="let go", held_since=held_since)
                break
            if not held_since:
                held_since = self._now_ns()
                self._first_hold = self._first_hold or time.monotonic()
            self._judge()
            if self._decided is None and self._order.verdict(at).hold:
                self._crew.changed.wait(LOOK_S)
                self._mind_the_time()
        if held_since:
            self._held_ns += self._now_ns() - held_since

    def _take(self, at: Arrival, thread: Thread, held_since: int) -> None:
        """The next step happens."""
        order, step = self._order, self._order.step
        self._witness.add(
            at,
            thread,
            self._now_ns(),
            event="step",
            attempt=len(self._attempts) + 1,
            step=order.index + 1,
            role=step.role,
            name=step.name or "",
            held_since=held_since,
        )
        self._recorder.events.append(Passed(seat_name(thread), at.point, at.info))
        order.index += 1
        order.unsettled = thread
        self._crew.changed.notify_all()
        if order.complete:
            self._decide(ORDER_DONE, "")

    def _settle(self, thread: Thread) -> None:
        """Something was heard of the thread that made the last step: what follows its point has happened."""
        if self._order.unsettled is thread:
            self._order.unsettled = None
            self._crew.changed.notify_all()

    # decisions

    def _judge(self) -> None:
        """Can the next step still happen? If not, the attempt is over."""
        order = self._order
        if self._decided is not None or not self._crew.workers or order.unsettled is not None:
            return
        candidates = order.candidates(order.step.role)
        if not candidates:
            self._end_attempt(UNREACHABLE, order.nobody(), retry=False)
            return
        able = self._crew.able(lambda seat: seat.at is not None and not order.verdict(seat.at).hold)
        stuck: list[Seat] = []
        for who in candidates:
            seats = self._crew.seats_of(who)
            if not seats or any(seat.thread.ident in able for seat in seats):
                return
            stuck += [seat for seat in seats if not seat.thread.engine] or seats
        self._give_reason([self._crew.chain(seat, able) for seat in stuck])

    def _give_reason(self, chains: list[Chain]) -> None:
        """All who could make the step are stuck: by a lock (excluded), or by the plan itself."""
        step = self._order.step
        for chain in chains:
            for link in chain.links:
                if link.kind != QUEUE and chain.held:
                    holds = [str(each) for each in chain.links]
                    names = {"lock": link.what, "waiter": link.who, "holder": link.holder, "holds": holds}
                    self._end_attempt(EXCLUDED, f"{step} cannot come: {chain}", retry=True, **names)
                    return
        self._end_attempt(UNREACHABLE, f"{step} cannot come: {chains[0]}", retry=True)

    def _mind_the_time(self) -> None:
        if self._decided is not None:
            return
        now = time.monotonic()
        silent, overall = now - self._crew.last, now - self._first_hold
        if silent > self._silent_s:
            limit = f"no thread reported anything for {silent:.0f} s"
        elif overall > self._overall_s:
            limit = f"{overall:.0f} s passed"
        else:
            return
        where = "; ".join(self._crew.whereabouts())
        before = self._order.unsettled
        if before is not None:
            where += f". {seat_name(before)} made the step before and came to no point since, which is how a step ends"
        self._end_attempt(UNDECIDED, f"{limit} while waiting for {self._order.step}: {where}", retry=False)

    def _unfinished(self) -> tuple[str, str]:
        step = self._order.step
        if not self._crew.workers:
            return UNDECIDED, "the trial ended before its workers began"
        if self._crew.live_workers():
            return UNDECIDED, f"the trial was stopped before {step}: {'; '.join(self._crew.whereabouts())}"
        return UNREACHABLE, f"the trial ended before {step}"

    def _end_attempt(self, ending: str, reason: str, *, retry: bool, **more: Any) -> None:
        bound = dict(self._order.bound)
        self._attempts.append({"ending": ending, "reason": reason, "steps": self._order.index, "bindings": bound, **more})
        if not retry or len(self._attempts) >= self._most:
            self._decide_by_attempts()
            return
        self._order = Order(self._plan, self._crew)
        for seat in self._crew.seats.values():
            if seat.at is not None:
                seat.at.nth.clear()
                self._order.count(seat.at)
        self._crew.changed.notify_all()

    def _decide_by_attempts(self) -> None:
        """What stood against it once, even if a later attempt met something else."""
        for ending in (UNDECIDED, EXCLUDED, UNREACHABLE):
            for attempt in self._attempts:
                if attempt["ending"] == ending:
                    more = {key: attempt[key] for key in ("lock", "waiter", "holder", "holds") if key in attempt}
                    self._decide(ending, attempt["reason"], bindings=attempt["bindings"], **more)
                    return

    def _decide(self, order: str, reason: str, **more: Any) -> None:
        self._decided = {"order": order, "reason": reason, "bindings": dict(self._order.bound), **more}
        if order == ORDER_DONE:  # what follows may be the end of the process, and of all that it could tell
            keep(self._folder, {"kind": "directed", **self._decided, "witness": self._witness.lines})
        self._crew.changed.notify_all()


def make(spec: ScheduleSpec, setting: Setting) -> Schedule | None:
    """From the plan in `spec["extra"]["plan"]`. None for a plan without steps. Raises PlanError."""
    del spec
    document = setting.extra.get("plan")
    if document is None:
        raise PlanError('schedule = "directed" needs a plan; use harness reproduce')
    plan = Plan.from_json(document)
    return Directed(plan, setting) if plan.steps else None
