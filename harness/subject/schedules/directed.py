"""`directed`: brings about the order of a plan, or finds out why it cannot be had.

After the directed schedules of Park and Sen's race-directed testing (*Race directed random testing of concurrent programs*,
PLDI 2008: hold a thread at one half of a potential race until another is at the other half). Departures: the order is
given, not found, so nothing is random; a hold does not end after some time but when the order is complete, or when it is
known (`crew`) that the next step can no longer happen; and the answer says why.

A step counts as made, for gates and for the next step, when its thread has come to its next point (of any kind), waits or
has ended: what lies between a point and the next belongs to the step. Else the thread that is let go first and the one that
is let go next would race for what the plan wants in order.

One trial makes up to K attempts: an attempt that is excluded or missed lets everybody go and starts over with the next
occurrence of the first step. Nobody is held once the plan is decided.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from harness.core.plan import (
    EXCLUDED,
    OCCURRENCES,
    ORDER_DONE,
    UNDECIDED,
    UNREACHABLE,
    Gate,
    Plan,
    PlanError,
    Step,
)
from harness.core.recording import Passed
from harness.core.schedulespec import ScheduleSpec

from ..identity import Thread
from .base import QUEUE, Schedule, Setting, Wait
from .crew import LOOK_S, MAIN, Arrival, Chain, Crew, Seat, seat_name, who_is
from .recorder import Recorder
from .witness import Witness

SILENT_S = 20.0  # no report from any thread while one is held: undecided
OVERALL_S = 120.0  # from the first hold of a trial


class Verdict:
    """Whether an arrival may pass. `role` and `step`: it is that step; `bind`: the role that it is bound to by this."""

    __slots__ = ("bind", "hold", "role", "step")

    def __init__(self, hold: bool, role: str = "", step: int = -1, bind: str = "") -> None:
        self.hold, self.role, self.step, self.bind = hold, role, step, bind


_PASS = Verdict(False)


class Directed:
    """See the module's text. One lock guards all state; threads wait on its condition."""

    def __init__(self, plan: Plan, setting: Setting) -> None:
        self._plan = plan
        self._crew = Crew(setting.threads)
        self._now_ns = setting.now_ns
        self._most = int(setting.extra.get("occurrences", OCCURRENCES))
        self._silent_s = float(setting.extra.get("silent_s", SILENT_S))
        self._overall_s = float(setting.extra.get("overall_s", OVERALL_S))
        self._names = {step.name: i for i, step in enumerate(plan.steps) if step.name}
        self._listed = {step.point for step in plan.steps} | {gate.point for gate in plan.gates}
        self._listed |= {step.before for step in plan.steps if step.before}
        self._witness = Witness()
        self._recorder = Recorder(setting)
        self._attempts: list[dict[str, Any]] = []
        self._decided: dict[str, Any] | None = None
        self._first_hold = 0.0
        self._held_ns = 0
        self._unsettled: Thread | None = None  # who made the last step, until something is heard of it
        self._start_over()

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
            self._crew.seat(thread).wait = None

    def reach(self, point: str, thread: Thread, info: str) -> None:
        """Pass, be held, or be the next step."""
        if self._decided is not None:
            return
        if point not in self._listed and self._unsettled is not thread:
            self._crew.last = time.monotonic()
            return
        with self._crew.changed:
            self._settle(thread)
            if point not in self._listed:
                return
            seat = self._crew.arrive(thread, point, info)
            assert seat.at is not None
            self._missed(seat.at)
            self._count(seat.at)
            self._pass(seat, seat.at)
            seat.at = None

    def finish(self) -> dict[str, Any]:
        """The order's ending, and how it came about. Lets go of everybody."""
        with self._crew.changed:
            if self._decided is None:
                self._decide(*self._unfinished())
            assert self._decided is not None
            bindings = self._decided["bindings"]
            return {
                "kind": "directed",
                **self._decided,
                "occurrences": self._most,
                "attempts": list(self._attempts),
                "witness": list(self._witness.lines),
                "held_s": round(self._held_ns / 1e9, 4),
                "recording": self._recorder.write(bindings=bindings),
            }

    # arrivals; all below is called with the lock held

    def _pass(self, seat: Seat, at: Arrival) -> None:
        held_since = 0
        while self._decided is None:
            verdict = self._verdict(at)
            if verdict.bind:
                self._bound[verdict.bind] = at.who
            if not verdict.hold:
                if verdict.step >= 0:
                    self._take(verdict, at, seat.thread, held_since)
                elif held_since:
                    self._witness.add(at, seat.thread, self._now_ns(), event="let go", held_since=held_since)
                break
            if not held_since:
                held_since = self._now_ns()
                self._first_hold = self._first_hold or time.monotonic()
            self._judge()
            if self._decided is None and self._verdict(at).hold:
                self._crew.changed.wait(LOOK_S)
                self._mind_the_time()
        if held_since:
            self._held_ns += self._now_ns() - held_since

    def _verdict(self, at: Arrival) -> Verdict:
        """What `at` is to do as things are. Changes nothing."""
        own = self._role_of(at.who)
        for role in [own] if own else self._free_roles(at.who):
            index = self._next_of(role)
            if index is None or at.nth.get((role, index)) != self._plan.steps[index].nth:
                continue
            bind = "" if own else role
            now = index == self._index and self._unsettled is None
            return Verdict(not now, role, index if now else -1, bind)
        made = self._index - (self._unsettled is not None)
        for gate in self._plan.gates:
            if gate.point == at.point and self._names[gate.until] >= made:
                verdict = self._at_gate(gate, at.who, own)
                if verdict is not None:
                    return verdict
        return _PASS

    def _at_gate(self, gate: Gate, who: str, own: str) -> Verdict | None:
        """None: the gate has nothing against `who`."""
        bound = self._bound.get(gate.role)
        if not gate.who.startswith("!"):
            return Verdict(True) if who == bound else None
        if bound is None and not own and self._eligible(who, gate.role):
            return Verdict(False, bind=gate.role)
        return None if who == bound else Verdict(True)

    def _count(self, at: Arrival) -> None:
        """Of which steps this is the how-manieth occurrence."""
        own = self._role_of(at.who)
        for role in [own] if own else self._free_roles(at.who):
            index = self._next_of(role)
            if index is not None and _matches(self._plan.steps[index], at):
                key = (role, index, at.who)
                self._counts[key] = at.nth[role, index] = self._counts.get(key, 0) + 1

    def _missed(self, at: Arrival) -> None:
        role = self._role_of(at.who)
        index = self._next_of(role) if role else None
        if index is not None and self._plan.steps[index].before == at.point:
            step = self._plan.steps[index]
            self._end_attempt(UNREACHABLE, f"{at.who} came to {at.point} without {step}", retry=True)

    def _take(self, verdict: Verdict, at: Arrival, thread: Thread, held_since: int) -> None:
        """The next step happens."""
        step = self._plan.steps[self._index]
        more = {"event": "step", "step": self._index + 1, "role": step.role, "name": step.name or "", "held_since": held_since}
        self._witness.add(at, thread, self._now_ns(), attempt=len(self._attempts) + 1, **more)
        self._recorder.events.append(Passed(seat_name(thread), at.point, at.info))
        self._index += 1
        self._unsettled = thread
        self._crew.changed.notify_all()
        if self._index == len(self._plan.steps):
            self._decide(ORDER_DONE, "")
        else:
            self._judge()

    def _settle(self, thread: Thread) -> None:
        """Something was heard of the thread that made the last step: what follows its point has happened."""
        if self._unsettled is thread:
            self._unsettled = None
            self._crew.changed.notify_all()

    # roles

    def _role_of(self, who: str) -> str:
        return next((role for role, bound in self._bound.items() if bound == who), "")

    def _free_roles(self, who: str) -> list[str]:
        """The role that `who` could be bound to by arriving: the first one that is unbound, in order of first steps."""
        unbound = next((step.role for step in self._plan.steps if step.role not in self._bound), None)
        return [unbound] if unbound is not None and self._eligible(who, unbound) else []

    def _eligible(self, who: str, role: str) -> bool:
        kind = self._plan.roles[role]
        return kind in ("any", who, self._crew.role(who)) or (kind == "main" and who == MAIN)

    def _next_of(self, role: str) -> int | None:
        """The index of the role's next step; None when it has made all of its own."""
        steps = self._plan.steps
        return next((i for i in range(self._index, len(steps)) if steps[i].role == role), None)

    def _candidates(self, role: str) -> list[str]:
        """Who can still make the role's step: not ended, and no other role's."""
        if role in self._bound:
            return [who for who in [self._bound[role]] if who not in self._crew.ended]
        others = [who_is(seat.thread) for seat in self._crew.seats.values() if not seat.thread.worker]
        names = dict.fromkeys([*self._crew.live_workers(), *others])
        return [who for who in names if self._eligible(who, role) and not self._role_of(who)]

    # decisions

    def _judge(self) -> None:
        """Can the next step still happen? If not, the attempt is over."""
        if self._decided is not None or not self._crew.workers or self._unsettled is not None:
            return
        step = self._plan.steps[self._index]
        candidates = self._candidates(step.role)
        if not candidates:
            self._end_attempt(UNREACHABLE, self._nobody_for(step), retry=False)
            return
        able = self._crew.able(lambda seat: seat.at is not None and not self._verdict(seat.at).hold)
        stuck: list[Seat] = []
        for who in candidates:
            seats = self._crew.seats_of(who)
            if not seats or any(seat.thread.ident in able for seat in seats):
                return
            stuck += [seat for seat in seats if not seat.thread.engine] or seats
        self._give_reason(step, [self._crew.chain(seat, able) for seat in stuck])

    def _nobody_for(self, step: Step) -> str:
        bound = self._bound.get(step.role)
        if bound is not None:
            return f"{bound} ended without coming to {step}"
        kind = self._plan.roles[step.role]
        known = ", ".join(sorted(set(self._crew.workers.values()))) or "none"
        if not any(self._eligible(who, step.role) for who in self._crew.workers):
            return f'nobody here is "{kind}" for {step}; the workers are of the roles {known}'
        return f"every {kind} that could play {step.role} has ended, or plays another role, before {step}"

    def _give_reason(self, step: Step, chains: list[Chain]) -> None:
        """All who could make the step are stuck: by a lock (excluded), or by the plan itself."""
        for chain in chains:
            for link in chain.links:
                if link.kind != QUEUE and chain.held:
                    self._end_attempt(
                        EXCLUDED,
                        f"{step} cannot come: {chain}",
                        retry=True,
                        lock=link.what,
                        waiter=link.who,
                        holder=link.holder,
                        holds=[str(each) for each in chain.links],
                    )
                    return
        self._end_attempt(UNREACHABLE, f"{step} cannot come: {chains[0]}", retry=True)

    def _mind_the_time(self) -> None:
        if self._decided is not None:
            return
        now = time.monotonic()
        silent, overall = now - self._crew.last, now - self._first_hold
        if silent > self._silent_s or overall > self._overall_s:
            step = self._plan.steps[self._index]
            where = "; ".join(self._whereabouts())
            limit = f"no thread reported anything for {silent:.0f} s" if silent > self._silent_s else f"{overall:.0f} s passed"
            self._end_attempt(UNDECIDED, f"{limit} while waiting for {step}: {where}", retry=False)

    def _whereabouts(self) -> list[str]:
        found = []
        for seat in self._crew.seats.values():
            if not seat.ended:
                doing = f"held at {seat.at.point}" if seat.at else f"waits for {seat.wait.what}" if seat.wait else "runs"
                found.append(f"{seat.thread.label()} {doing}")
        return found

    def _unfinished(self) -> tuple[str, str]:
        step = self._plan.steps[self._index]
        if self._crew.live_workers():
            return UNDECIDED, f"the trial was stopped before {step}: {'; '.join(self._whereabouts())}"
        return UNREACHABLE, f"the trial ended before {step}"

    def _end_attempt(self, ending: str, reason: str, *, retry: bool, **more: Any) -> None:
        done = {"ending": ending, "reason": reason, "steps": self._index, "bindings": dict(self._bound), **more}
        self._attempts.append(done)
        if not retry or len(self._attempts) >= self._most:
            self._decide_by_attempts()
            return
        self._start_over()
        for seat in self._crew.seats.values():
            if seat.at is not None:
                seat.at.nth.clear()
                self._count(seat.at)
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
        self._decided = {"order": order, "reason": reason, "bindings": dict(self._bound), **more}
        self._crew.changed.notify_all()

    def _start_over(self) -> None:
        self._index = 0
        self._unsettled = None
        self._bound: dict[str, str] = {}
        self._counts: dict[tuple[str, int, str], int] = {}


def _matches(step: Step, at: Arrival) -> bool:
    return (
        step.point == at.point
        and (step.info is None or step.info == at.info)
        and (step.where is None or step.where in at.regions)
    )


def make(spec: ScheduleSpec, setting: Setting) -> Schedule | None:
    """From the plan in `spec["extra"]["plan"]`. None for a plan without steps. Raises PlanError."""
    del spec
    document = setting.extra.get("plan")
    if document is None:
        raise PlanError('schedule = "directed" needs a plan; use harness reproduce')
    plan = Plan.from_json(document)
    return Directed(plan, setting) if plan.steps else None
