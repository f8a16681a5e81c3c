"""A failing and a passing recording → the one pair of events whose order decides, and a directed plan that says so.

After delta debugging of schedules (Choi and Zeller, *Isolating failure-inducing thread schedules*, ISSTA 2002): between an
order that passes and one that fails there are two neighbours of which one passes and one fails. Departure: it is done by
two binary searches over spliced orders, not over switch positions. First: how much of the failing order is needed before
the passing one may take over; its last event is the one that comes too early. Then: before which other event it must come.

Both ends of either search are run as well, and not taken from the orders that were recorded: a thread can take another way
after a change (one that failed stops at its exception), and then a spliced order comes to what neither recording tells.

Pure: what an order comes to is asked of `fails`, which runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.core.plan import Counterfactual, Plan, Step
from harness.core.points import is_point
from harness.core.recording import Passed

Order = Sequence[Passed]
Fails = Callable[[Order], bool]


class NothingToMinimise(UserError):
    """The two recordings do not differ in what they come to, when they are run again, or not by the order of two events."""


@dataclass(frozen=True)
class CriticalPair:
    """`first` before `second` fails, the other way round passes; both were run. Indices into `order`, which fails."""

    order: tuple[Passed, ...]
    first: int
    second: int
    asked: int  # orders that were run

    @property
    def events(self) -> tuple[Passed, Passed]:
        """The two."""
        return self.order[self.first], self.order[self.second]

    def __str__(self) -> str:
        first, second = self.events
        return f"{first} before {second}"


def critical_pair(failing: Order, passing: Order, fails: Fails) -> CriticalPair:
    """The pair. Raises NothingToMinimise: the failing order does not fail again, or the passing one does; or what differs is
    which way a thread takes, and not only the order of two threads' events."""
    asked = _Asked(fails)
    if not asked(failing):
        raise NothingToMinimise(
            "the failing recording, replayed, does not fail: its outcome hangs on more than the order of sync points"
        )
    if asked(passing):
        raise NothingToMinimise("the passing recording, replayed, fails as well: there is no order to tell them apart")
    needed = _first_true(lambda length: asked(splice(failing, passing, length)), 0, len(failing))
    early = failing[needed - 1]
    prefix = list(failing[: needed - 1])
    rest = list(splice(failing, passing, needed - 1))[needed - 1 :]
    # Where the passing order has the event; an event that it does not have comes last.
    at = rest.index(early) if early in rest else len(rest)
    if at == 0:
        raise NothingToMinimise(f"{early} makes the difference by being there at all, not by coming before another event")
    without = rest[:at] + rest[at + 1 :]

    def moved(position: int) -> list[Passed]:
        return [*prefix, *without[:position], early, *without[position:]]

    if not asked(moved(0)):
        raise NothingToMinimise(f"{early}, moved before what follows it in the passing trial, does not fail: {_ANOTHER_WAY}")
    if asked(moved(at)):
        raise NothingToMinimise(f"{early}, moved to where the passing trial has it, fails all the same: {_ANOTHER_WAY}")
    # It fails at position 0 and passes at the other end. The last position at which it fails is before the other event; the
    # next one is the same order with the two exchanged.
    too_late = _first_true(lambda position: not asked(moved(position)), 0, at)
    second = without[too_late - 1]
    if second.seat == early.seat:
        raise NothingToMinimise(f"{early} and {second} are of one thread, so no order decides: {_ANOTHER_WAY}")
    first = len(prefix) + too_late - 1
    return CriticalPair(tuple(moved(too_late - 1)), first, first + 1, asked.count)


_ANOTHER_WAY = "a thread takes another way than in the passing trial, and more decides than the order of two events"


def splice(failing: Order, passing: Order, length: int) -> list[Passed]:
    """The first `length` events of the failing order, then the passing one's rest.

    Of a thread that has gone another way by then nothing is asked any more: the passing order knows not where it goes.
    """
    taken = list(failing[:length])
    own: dict[str, list[Passed]] = {}
    for event in taken:
        own.setdefault(event.seat, []).append(event)
    seen: dict[str, int] = {}
    for event in passing:
        position = seen.get(event.seat, 0)
        seen[event.seat] = position + 1
        before = own.get(event.seat, [])
        if position >= len(before) and _begins(passing, event.seat, before):
            taken.append(event)
    return taken


def _begins(order: Order, seat: str, with_these: Sequence[Passed]) -> bool:
    events = (event for event in order if event.seat == seat)
    return all(event == next(events, None) for event in with_these)


def plans(pair: CriticalPair, workers: Mapping[str, str]) -> Iterator[Plan]:
    """Directed plans for the pair, the smallest first. `workers`: name → role, as in the recording's head.

    Smallest: the event before `second` in its own thread (which opens the window), then `first`, then `second`. Next: the
    last event of every other thread before `first` as well. Last: everything up to `second`.
    """
    first, second = pair.first, pair.second
    order = pair.order
    opens = _last_of(order, order[second].seat, first)
    seats = dict.fromkeys(event.seat for event in order[:first])
    others = [_last_of(order, seat, first) for seat in seats if seat not in (order[first].seat, order[second].seat)]
    window = [index for index in (opens, first, second) if index is not None]
    wider = sorted({*window, *(index for index in others if index is not None)})
    for indices in dict.fromkeys((tuple(window), tuple(wider), tuple(range(second + 1)))):
        made = _plan(order, [index for index in indices if is_point(order[index].point)], workers, pair)
        if made is not None:
            yield made


def _last_of(order: Order, seat: str, before: int) -> int | None:
    return next((i for i in range(before - 1, -1, -1) if order[i].seat == seat), None)


def _plan(order: Order, indices: Sequence[int], workers: Mapping[str, str], pair: CriticalPair) -> Plan | None:
    roles: dict[str, str] = {}  # worker → role of the plan
    counted: dict[str, int] = {}  # worker → index of its previous step
    steps: list[Step] = []
    for index in indices:
        event = order[index]
        worker = event.seat.removesuffix("@engine")
        role = roles.setdefault(worker, chr(ord("A") + len(roles)))
        since = counted.get(worker, -1) + 1
        same = [e for e in order[since : index + 1] if e.seat.removesuffix("@engine") == worker and e[1:] == event[1:]]
        steps.append(Step(role, event.point, nth=len(same), info=event.info or None))
        counted[worker] = index
    if not steps or len(roles) > 26:
        return None
    bound = {role: workers.get(worker, worker) for worker, role in roles.items()}
    return Plan(bound, steps=steps, counterfactual=_other_way_round(steps, list(indices), pair))


def _other_way_round(steps: Sequence[Step], indices: Sequence[int], pair: CriticalPair) -> Counterfactual | None:
    """The same points with the pair's second before its first; None where the first's thread has a step between them."""
    if pair.first not in indices or pair.second not in indices:
        return None
    at, after = indices.index(pair.first), indices.index(pair.second)
    between = steps[at + 1 : after + 1]
    if any(step.role == steps[at].role for step in between):
        return None
    return Counterfactual(steps=[*steps[:at], *between, steps[at], *steps[after + 1 :]])


def _first_true(holds: Callable[[int], bool], false_at: int, true_at: int) -> int:
    """The first number at which `holds` is true, given that it is false at one end and true at the other."""
    while true_at - false_at > 1:
        middle = (false_at + true_at) // 2
        if holds(middle):
            true_at = middle
        else:
            false_at = middle
    return true_at


class _Asked:
    """`fails`, with its answers remembered."""

    def __init__(self, fails: Fails) -> None:
        self._fails = fails
        self._known: dict[tuple[Passed, ...], bool] = {}

    @property
    def count(self) -> int:
        return len(self._known)

    def __call__(self, order: Order) -> bool:
        key = tuple(order)
        if key not in self._known:
            self._known[key] = self._fails(key)
        return self._known[key]
