"""Where warm workers' time went, and who keeps idle ones waiting: from the workers' part of rows.

    spent = Spent(); spent.add(row["workers"]["drafter-0"])
    spent.busy                                     # 0.93: the share in which it waited for nothing
    why_idle({"drafter-0": spent, "target-0": …})  # "drafter-0 is busy 93 % …: it waits …"; "" if none is idle

The time is that from when all who take steps are warm to a worker's own last good step (`harness.subject.warm_time`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

BUSY = 0.95
"""Who is busy for this share of its time is kept waiting by nobody worth naming."""

ITEMS, ROOM, LOCKS, OTHERS = "items", "room", "locks", "others"
KINDS = (ITEMS, ROOM, LOCKS, OTHERS)
"""What is waited for: the next item, room in a queue, a lock, and the rest (barriers, waits of a workload's own)."""

_KINDS = {"queue.get": ITEMS, "queue.put": ROOM, "strategy_lock": LOCKS, "compile_lock": LOCKS}
_LOCKS = {"strategy_lock": "the strategy's lock", "compile_lock": "torch's compile lock, so something still compiles"}
_OTHERS = {"transfer": "the transfer of items to the device"}
LITTLE = 0.1
"""A share that explains nothing."""

MOST_SAID = 6
_MOST = 1e15
_MOST_NAMES = 64


@dataclass
class Spent:
    """One worker's time, of any number of trials. Seconds."""

    role: str = ""
    warm: float = 0.0
    waited: dict[str, float] = field(default_factory=dict)  # what for
    room_of: dict[str, float] = field(default_factory=dict)  # whose queue it waited to fill
    cpu: float = 0.0  # its own thread ran, of
    cpu_of: float = 0.0  # so much of its time: that of trials that tell

    def add(self, worker: Mapping[str, Any]) -> None:
        """One trial's account of it, as far as that can be read; one of an older harness says nothing."""
        warm = worker.get("warm_s")
        if not is_seconds(warm) or not warm:
            return
        self.role = str(worker.get("role", ""))[:40]
        self.warm += warm
        for what, seconds in _seconds(worker.get("waited_s")):
            self._count(self.waited, what, min(seconds, warm))
        if is_seconds(cpu := worker.get("cpu_s")):
            self.cpu += min(cpu, warm)
            self.cpu_of += warm
        on = worker.get("waited_on_s")
        for whom, seconds in _seconds(on.get("queue.put") if isinstance(on, dict) else None):
            self._count(self.room_of, whom, min(seconds, warm))

    def join(self, other: Spent) -> None:
        """Another's account, of the same name in another scenario."""
        self.role = self.role or other.role
        self.warm += other.warm
        self.cpu += other.cpu
        self.cpu_of += other.cpu_of
        for into, more in ((self.waited, other.waited), (self.room_of, other.room_of)):
            for name, seconds in more.items():
                self._count(into, name, seconds)

    @staticmethod
    def _count(into: dict[str, float], name: str, seconds: float) -> None:
        if name in into or len(into) < _MOST_NAMES:
            into[name] = into.get(name, 0.0) + seconds

    def share(self, kind: str) -> float:
        """The share of the time in which it waited for that kind."""
        found = sum(seconds for what, seconds in self.waited.items() if _KINDS.get(what, OTHERS) == kind)
        return min(1.0, found / self.warm) if self.warm else 0.0

    @property
    def ran(self) -> float | None:
        """The share in which its own thread ran; None: no trial tells."""
        return self.cpu / self.cpu_of if self.cpu_of else None

    @property
    def busy(self) -> float:
        """The share in which it waited for nothing."""
        return max(0.0, 1 - sum(map(self.share, KINDS)))


def steppers_of(workers: Mapping[str, Spent]) -> dict[str, Spent]:
    """The drafters, or where there are none all, as far as their time is known."""
    known = {name: spent for name, spent in workers.items() if spent.warm}
    return {name: spent for name, spent in known.items() if spent.role == "drafter"} or known


def why_idle(workers: Mapping[str, Spent]) -> str:
    """Who of those who take steps is idle, and what keeps them so; "" where none is, or nothing is known."""
    known = {name: spent for name, spent in workers.items() if spent.warm}
    steppers = steppers_of(workers)
    idle = {name: spent for name, spent in steppers.items() if spent.busy < BUSY}
    if not idle:
        return ""
    shares = {kind: sum(spent.share(kind) for spent in idle.values()) / len(idle) for kind in KINDS}
    kind = max(KINDS, key=shares.__getitem__)
    one = len(idle) == 1
    waits = f"{'it waits' if one else 'they wait'} {_percent(shares[kind])} of {'its' if one else 'their'} time"
    busy = range_of([spent.busy for spent in idle.values()])
    who = f"{names_of(sorted(idle))} {'is' if one else 'are'} busy {busy} of the time once all are warm"
    return f"{who}: {waits} for {_cause(kind, idle, known)}"


def _cause(kind: str, idle: Mapping[str, Spent], known: Mapping[str, Spent]) -> str:
    if kind == ITEMS:
        return "items" + _why_no_items({name: spent for name, spent in known.items() if spent.role == "target"})
    if kind == ROOM:
        return f"room in {_queues(idle.values())}"
    waited = _sums(one.waited for one in idle.values())
    most = max((what for what in waited if _KINDS.get(what, OTHERS) == kind), key=waited.__getitem__)
    if kind == LOCKS:
        return _LOCKS[most]
    return "the others at a barrier" if "barrier" in most else _OTHERS.get(most, most)


def _why_no_items(targets: Mapping[str, Spent]) -> str:
    if not targets:
        return ""  # of several processes their own accounts are all there is
    shares = {kind: sum(spent.share(kind) for spent in targets.values()) / len(targets) for kind in KINDS}
    kind = max(KINDS, key=shares.__getitem__)
    one = len(targets) == 1
    if shares[kind] < LITTLE:
        busy = range_of([spent.busy for spent in targets.values()])
        who = f"the target is busy {busy} of its own" if one else f"the targets are busy {busy} of theirs"
        return f", and {who}: more targets, or faster ones, would make more"
    share = _percent(shares[kind])
    who = f"the target waits {share} of its own" if one else f"the targets wait {share} of theirs"
    if kind == ROOM:
        go_on = f"a greater queue_depth would let {'it' if one else 'them'} go on"
        return f", while {who} for room in {_queues(targets.values())}: {go_on}"
    return f", and {who} for {_cause(kind, targets, {})}"  # who makes what a target takes is not known


def _queues(spent: Iterable[Spent]) -> str:
    """Of those that were waited for, the ones that make up most of it."""
    sums = _sums(one.room_of for one in spent)
    shown = [name for name in sorted(sums) if sums[name] >= LITTLE * sum(sums.values())]
    return f"the queue{'s' if len(shown) > 1 else ''} of {names_of(shown)}" if shown else "a queue"


def _sums(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        for name, seconds in part.items():
            found[name] = found.get(name, 0.0) + seconds
    return found


def names_of(names: Sequence[str]) -> str:
    """`a, b and c`; of many the first ones and how many more."""
    shown = list(names[:MOST_SAID]) + ([f"{len(names) - MOST_SAID} more"] if len(names) > MOST_SAID else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def range_of(shares: Sequence[float]) -> str:
    """`45 – 50 %`, of shares from 0 to 1."""
    low, high = _percent(min(shares)), _percent(max(shares))
    return low if low == high else f"{low.removesuffix(' %')} – {high}"


def is_seconds(value: object) -> TypeGuard[float]:
    """Whether it is a time, or another number that is not negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


def _seconds(value: object) -> list[tuple[str, float]]:
    """The entries of a table that are times, where it is a table."""
    entries = value.items() if isinstance(value, dict) else ()
    return [(str(name)[:60], float(seconds)) for name, seconds in entries if is_seconds(seconds)]
