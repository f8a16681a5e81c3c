"""Events of a trial → what each thread was in, and who held what: lanes of nested spans, marks, and holds. Pure.

A thread's spans nest by the order in which they were opened: a span lies one row below the innermost span that was open
when it began. Spans that cross (a hold that outlives the region it began in) keep their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

REGION, TRACE, COMPILE, LOWERING, ENGINE, HOLD, WAIT, QUEUE = (
    "region",
    "trace",
    "compile",
    "lowering",
    "engine",
    "hold",
    "wait",
    "queue",
)
KINDS = (REGION, TRACE, COMPILE, LOWERING, ENGINE, HOLD, WAIT, QUEUE)
"""Sorts of span."""

COMPILE_LOCK = "compile lock"
FX_TRACE = "FX trace"
BARRIER = "barrier"
BAD, OPEN = 1, 2
"""Flags of a span: what it stands for failed; it was still open when the log ended."""

_OPENS = {
    "region.enter": REGION,
    "fx.trace.enter": TRACE,
    "compile.start": COMPILE,
    "backward_lowering.enter": LOWERING,
    "engine.enter": ENGINE,
    "compile_lock.wait": WAIT,
    "strategy_lock.wait": WAIT,
    "barrier.wait": WAIT,
    "wait.enter": QUEUE,
}
_CLOSES = {
    "region.exit": REGION,
    "fx.trace.exit": TRACE,
    "compile.end": COMPILE,
    "backward_lowering.exit": LOWERING,
    "engine.exit": ENGINE,
    "barrier.leave": WAIT,
    "wait.exit": QUEUE,
}
_SILENT = frozenset({"subject.start", "worker.start", "worker.end", "subject.end", "process.alive"})
_MAIN_LAST = ("MainThread", "harness-watchdog")


class Span(NamedTuple):
    """From `start` to `end` (ns) in row `depth` of its lane. `worker`: whom the thread worked for."""

    start: int
    end: int
    depth: int
    kind: str
    name: str
    worker: str
    flags: int


class Mark(NamedTuple):
    """Something that happened at a moment (ns)."""

    at: int
    kind: str
    text: str


@dataclass
class Lane:
    """One thread. `role`: of its worker (target, drafter), "engine" for a device thread of autograd, else ""."""

    thread: str
    worker: str
    role: str
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How deep its spans nest."""
        return max((span.depth for span in self.spans), default=-1) + 1


class Memory(NamedTuple):
    """What a process had of a device's memory at a moment (ns), in bytes."""

    at: int
    device: str
    allocated: int
    reserved: int


class Holding(NamedTuple):
    """Lane `lane` held the thing, or was inside it, from `start` to `end` (ns)."""

    start: int
    end: int
    lane: int


@dataclass(frozen=True)
class Story:
    """What the events of one trial tell. `held`: the FX flag, the compile lock, each lock of the strategy."""

    lanes: tuple[Lane, ...]
    held: dict[str, list[Holding]]
    end: int
    events: int
    memory: tuple[Memory, ...] = ()


class _Open:
    __slots__ = ("depth", "kind", "name", "start", "worker")

    def __init__(self, start: int, depth: int, kind: str, name: str, worker: str) -> None:
        self.start, self.depth, self.kind, self.name, self.worker = start, depth, kind, name, worker


class _Thread:
    """A lane in the making."""

    def __init__(self, name: str) -> None:
        self.lane = Lane(name, "", "")
        self.stack: list[_Open] = []

    def open(self, at: int, kind: str, name: str, worker: str) -> None:
        depth = self.stack[-1].depth + 1 if self.stack else 0
        self.stack.append(_Open(at, depth, kind, name, worker))

    def close(self, at: int, kind: str, name: str, flags: int = 0) -> None:
        """The innermost open span of that sort and name; an end whose beginning is not in the log tells nothing."""
        for place in range(len(self.stack) - 1, -1, -1):
            one = self.stack[place]
            if one.kind == kind and (not name or one.name == name):
                del self.stack[place]
                self.lane.spans.append(Span(one.start, at, one.depth, kind, one.name, one.worker, flags))
                return

    def end(self, at: int) -> None:
        while self.stack:
            one = self.stack.pop()
            self.lane.spans.append(Span(one.start, at, one.depth, one.kind, one.name, one.worker, OPEN))
        self.lane.spans.sort(key=lambda span: (span.start, span.depth))


def tell(events: Iterable[Mapping[str, Any]], roles: Mapping[str, str]) -> Story:
    """Events in the order of their times → lanes. `roles`: worker → role. Events that are none are passed over."""
    threads: dict[tuple[str, object], _Thread] = {}
    memory: list[Memory] = []
    last = count = 0
    for event in events:
        at, kind, name = event.get("t"), event.get("k"), event.get("th")
        if not isinstance(at, int) or not 0 <= at < 2**53 or not isinstance(kind, str) or not isinstance(name, str):
            continue
        count += 1
        last = max(last, at)
        key = (name, event["id"] if isinstance(event.get("id"), int) else 0)
        thread = threads.get(key)
        if thread is None:
            thread = threads[key] = _Thread(name)
        worker = event.get("w")
        worker = worker if isinstance(worker, str) else ""
        thread.lane.worker = thread.lane.worker or worker
        if kind == "memory":
            memory += _memory(at, event)
            continue
        _take(thread, at, kind, worker, event)
    for thread in threads.values():
        thread.end(last)
        thread.lane.role = _role(thread.lane, roles)
    lanes = sorted((thread.lane for thread in threads.values()), key=_order)
    lanes = [lane for lane in lanes if lane.spans or lane.marks]
    return Story(tuple(lanes), _held(lanes), last, count, tuple(memory))


def _take(thread: _Thread, at: int, kind: str, worker: str, event: Mapping[str, Any]) -> None:
    if kind in _OPENS:
        thread.open(at, _OPENS[kind], _name(kind, event), worker)
    elif kind in _CLOSES:
        failed = event.get("error") == 1 or event.get("ok") is False
        thread.close(at, _CLOSES[kind], "" if kind == "wait.exit" else _name(kind, event), BAD if failed else 0)
    elif kind.endswith("lock.acquired"):
        name = _name(kind, event)
        thread.close(at, WAIT, name)
        thread.open(at, HOLD, name, worker)
    elif kind.endswith("lock.released"):
        thread.close(at, HOLD, _name(kind, event))
    elif kind not in _SILENT:
        thread.lane.marks.append(Mark(at, kind, _mark(event)))


def _memory(at: int, event: Mapping[str, Any]) -> list[Memory]:
    allocated, reserved = event.get("a"), event.get("r")
    if not isinstance(allocated, int) or not isinstance(reserved, int) or not 0 <= allocated <= reserved < 2**53:
        return []
    return [Memory(at, str(event.get("d")), allocated, reserved)]


def _name(kind: str, event: Mapping[str, Any]) -> str:
    if kind.startswith("region."):
        return str(event.get("r"))
    if kind.startswith("compile_lock."):
        return COMPILE_LOCK
    if kind.startswith("strategy_lock."):
        return f"lock {event.get('lock')}"
    if kind.startswith("barrier."):
        return BARRIER
    if kind.startswith("compile."):
        return f"compile {event.get('what')}"
    if kind.startswith("wait."):
        return str(event.get("what"))
    return {"fx.trace.": FX_TRACE, "backward_": "lower backward"}.get(kind[:9], "engine")


def _mark(event: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in event.items() if key not in ("t", "th", "id", "w", "k")}
    return ", ".join(f"{key} {value}" for key, value in shown.items() if not isinstance(value, dict | list))


def _role(lane: Lane, roles: Mapping[str, str]) -> str:
    if lane.thread.startswith("autograd-"):
        return "engine"
    return roles.get(lane.worker) or roles.get(lane.thread) or ""


def _order(lane: Lane) -> tuple[int, int, str]:
    place = {"target": 0, "drafter": 1, "engine": 3}.get(lane.role, 2)
    last = _MAIN_LAST.index(lane.thread) + 1 if lane.thread in _MAIN_LAST else 0
    return 4 if last else place, last, lane.thread


def _held(lanes: Iterable[Lane]) -> dict[str, list[Holding]]:
    """Outermost traces (the flag is set meanwhile) and holds of locks, in the order of their beginnings."""
    found: dict[str, list[Holding]] = {}
    for number, lane in enumerate(lanes):
        traced = -1
        for span in lane.spans:
            if span.kind == TRACE and span.start >= traced:
                traced = span.end
                found.setdefault("FX flag", []).append(Holding(span.start, span.end, number))
            elif span.kind == HOLD:
                found.setdefault(span.name, []).append(Holding(span.start, span.end, number))
    order = {"FX flag": 0, COMPILE_LOCK: 1}
    names = sorted(found, key=lambda name: (order.get(name, 2), name))
    return {name: sorted(found[name]) for name in names}
