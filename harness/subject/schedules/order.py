"""Where a plan stands: which step is next, who plays which role, and what an arrival at a point is to do.

No thread is touched here. `Order` is one attempt at a plan; `directed` makes as many as it takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.plan import Gate, Plan, Step

from ..identity import Thread
from .crew import MAIN, Arrival, Crew, who_is


@dataclass(frozen=True)
class Verdict:
    """Whether an arrival is held. `step`: it is that step, else -1; `bind`: the role that its worker gets by it."""

    hold: bool
    step: int = -1
    bind: str = ""


PASS = Verdict(False)


class Order:
    """One attempt. All is called with the crew's lock held."""

    def __init__(self, plan: Plan, crew: Crew) -> None:
        self.index = 0  # of the next step
        self.bound: dict[str, str] = {}  # role → worker, or thread by name
        self.unsettled: Thread | None = None  # who made the last step, until something is heard of it
        self._plan = plan
        self._crew = crew
        self._names = {step.name: i for i, step in enumerate(plan.steps) if step.name}
        self._counts: dict[tuple[str, int, str], int] = {}

    @property
    def step(self) -> Step:
        """The next one."""
        return self._plan.steps[self.index]

    @property
    def complete(self) -> bool:
        """Whether all steps were made."""
        return self.index == len(self._plan.steps)

    def verdict(self, at: Arrival) -> Verdict:
        """What `at` is to do as things are. Changes nothing."""
        own = self.role_of(at.who)
        for role in [own] if own else self._free_roles(at.who):
            index = self.next_of(role)
            if index is None or at.nth.get((role, index)) != self._plan.steps[index].nth:
                continue
            now = index == self.index and self.unsettled is None
            return Verdict(not now, index if now else -1, "" if own else role)
        made = self.index - (self.unsettled is not None)
        for gate in self._plan.gates:
            if gate.point == at.point and self._names[gate.until] >= made:
                found = self._at_gate(gate, at.who, own)
                if found is not None:
                    return found
        return PASS

    def count(self, at: Arrival) -> None:
        """Of which steps `at` is the how-manieth occurrence; once for each arrival."""
        own = self.role_of(at.who)
        for role in [own] if own else self._free_roles(at.who):
            index = self.next_of(role)
            if index is not None and _matches(self._plan.steps[index], at):
                key = (role, index, at.who)
                self._counts[key] = at.nth[role, index] = self._counts.get(key, 0) + 1

    def missed(self, at: Arrival) -> Step | None:
        """The step that its role must make before it comes to this point, and has not."""
        role = self.role_of(at.who)
        index = self.next_of(role) if role else None
        if index is None or self._plan.steps[index].before != at.point:
            return None
        return self._plan.steps[index]

    def role_of(self, who: str) -> str:
        """The role that a worker plays, or ""."""
        return next((role for role, bound in self.bound.items() if bound == who), "")

    def next_of(self, role: str) -> int | None:
        """The index of the role's next step; None when it has made all of its own."""
        steps = self._plan.steps
        return next((i for i in range(self.index, len(steps)) if steps[i].role == role), None)

    def eligible(self, who: str, role: str) -> bool:
        """Whether a worker is of the role's kind."""
        kind = self._plan.roles[role]
        return kind in ("any", who, self._crew.role(who)) or (kind == "main" and who == MAIN)

    def candidates(self, role: str) -> list[str]:
        """Who can still make the role's step: not ended, and no other role's."""
        if role in self.bound:
            return [who for who in [self.bound[role]] if who not in self._crew.ended]
        others = [who_is(seat.thread) for seat in self._crew.seats.values() if not seat.thread.worker]
        names = dict.fromkeys([*self._crew.live_workers(), *others])
        return [who for who in names if self.eligible(who, role) and not self.role_of(who)]

    def nobody(self) -> str:
        """Why the next step has no candidate left."""
        step, workers = self.step, self._crew.workers
        bound, kind = self.bound.get(step.role), self._plan.roles[step.role]
        if bound is not None:
            return f"{bound} ended without coming to {step}"
        if not any(self.eligible(who, step.role) for who in workers):
            known = ", ".join(sorted(set(workers.values()))) or "none"
            return f'nobody here is "{kind}" for {step}; the workers are of the roles {known}'
        return f"every {kind} that could play {step.role} has ended, or plays another role, before {step}"

    def _at_gate(self, gate: Gate, who: str, own: str) -> Verdict | None:
        """None: the gate has nothing against `who`."""
        bound = self.bound.get(gate.role)
        if not gate.who.startswith("!"):
            return Verdict(True) if who == bound else None
        if bound is None and not own and self.eligible(who, gate.role):
            return Verdict(False, bind=gate.role)
        return None if who == bound else Verdict(True)

    def _free_roles(self, who: str) -> list[str]:
        """The role that `who` could be bound to by arriving: in order of first steps, the first it is eligible for."""
        for step in self._plan.steps:
            if step.role not in self.bound and self.eligible(who, step.role):
                return [step.role]
        return []


def _matches(step: Step, at: Arrival) -> bool:
    return (
        step.point == at.point
        and (step.info is None or step.info == at.info)
        and (step.where is None or step.where in at.regions)
    )
