"""A trial as a trace for Perfetto or chrome://tracing: one track a thread, what nests as slices, what crosses as async.

Format: "Trace Event Format" of the Chromium project. Times are microseconds, to the nanosecond.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.report.spans import BAD, HOLD, OPEN, TRACE, WAIT, Lane, Span, tell
from harness.report.text import one_line, visible

Event = dict[str, Any]
PID = 1
LONGEST_TEXT = 1_000
_MARKS_THAT_FAIL = ("step.failed", "hang", "deadlock", "finding", "grad.missing", "is_compiling.leak")
_YIELDS_FIRST = (HOLD, WAIT, "queue", "engine")
"""Sorts of span that leave the track when they cross another: a lock may be held beyond the region it was taken in."""


def trace_document(events: Sequence[Mapping[str, Any]], trial: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The whole document. `events` in order of time; `facts` are written beside it as they are."""
    return {
        "traceEvents": list(trace_events(events, trial)),
        "displayTimeUnit": "ms",
        "otherData": {key: _text(str(value)) for key, value in facts.items()},
    }


def trace_events(events: Sequence[Mapping[str, Any]], trial: str) -> Iterator[Event]:
    """Metadata, then slices, async spans, instants, counters and flows."""
    story = tell(events, {})
    yield {"ph": "M", "pid": PID, "tid": 0, "name": "process_name", "args": {"name": _text(trial)}}
    for number, lane in enumerate(story.lanes):
        tid = number + 1
        name = lane.thread if lane.worker in ("", lane.thread) else f"{lane.thread} ({lane.worker})"
        yield {"ph": "M", "pid": PID, "tid": tid, "name": "thread_name", "args": {"name": _text(name)}}
        yield {"ph": "M", "pid": PID, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}
    crossing = 0
    for number, lane in enumerate(story.lanes):
        nested, crossed = split(lane.spans)
        for span in nested:
            yield _slice(number + 1, span)
        for span in crossed:
            crossing += 1
            yield from _async(number + 1, span, crossing)
        yield from _instants(number + 1, lane)
    yield from _counters(events)
    yield from _flows(events, story.lanes)


def split(spans: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """(spans that nest in one another, spans that would cross one of these). Where two cross, the lock gives way."""
    nested: dict[int, Span] = {}
    crossed: list[Span] = []
    open_now: list[tuple[int, Span]] = []
    for number, span in enumerate(sorted(spans, key=lambda one: (one.start, -one.end, one.depth))):
        while open_now and open_now[-1][1].end <= span.start:
            open_now.pop()
        gives_way = False
        while open_now and span.end > open_now[-1][1].end:
            if span.kind in _YIELDS_FIRST or open_now[-1][1].kind not in _YIELDS_FIRST:
                gives_way = True
                break
            place, other = open_now.pop()
            del nested[place]
            crossed.append(other)
        if gives_way:
            crossed.append(span)
        else:
            nested[number] = span
            open_now.append((number, span))
    return list(nested.values()), crossed


def _slice(tid: int, span: Span) -> Event:
    """Its end is rounded as its begin is, so that what nests in nanoseconds nests in what is written."""
    return {
        "ph": "X",
        "pid": PID,
        "tid": tid,
        "name": _name(span),
        "cat": span.kind,
        "ts": _us(span.start),
        "dur": _us(span.end - span.start),
        "args": _args(span),
    }


def _async(tid: int, span: Span, number: int) -> Iterator[Event]:
    common = {"pid": PID, "tid": tid, "name": _name(span), "cat": span.kind, "id": f"a{number}"}
    yield {"ph": "b", **common, "ts": _us(span.start), "args": _args(span)}
    yield {"ph": "e", **common, "ts": _us(span.end)}


def _instants(tid: int, lane: Lane) -> Iterator[Event]:
    """What failed, and a refused call, as marks on the track. A mark is a slice of no length too where a flow ends."""
    for mark in lane.marks:
        if mark.kind in _MARKS_THAT_FAIL or mark.kind == "flag.checked":
            args = {"what": _text(mark.text)}
            yield {
                "ph": "i",
                "pid": PID,
                "tid": tid,
                "name": _text(mark.kind),
                "cat": "error",
                "s": "t",
                "ts": _us(mark.at),
                "args": args,
            }


def _counters(events: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
    """Dense calls so far; memory where it was measured."""
    dense = 0
    yield {"ph": "C", "pid": PID, "tid": 0, "name": "dense calls", "ts": 0.0, "args": {"calls": 0}}
    for event in events:
        if event.get("k") == "dense.call":
            dense += 1
            at = _us(event["t"])
            yield {"ph": "C", "pid": PID, "tid": 0, "name": "dense calls", "ts": at, "args": {"calls": dense}}
        elif event.get("k") == "memory":
            values = {
                name: event[key] for key, name in (("a", "allocated"), ("r", "reserved")) if _number(event.get(key))
            }
            if values:
                name = f"memory {_text(str(event.get('d', '')))}".strip()
                yield {"ph": "C", "pid": PID, "tid": 0, "name": name, "ts": _us(event["t"]), "args": values}


def _flows(events: Iterable[Mapping[str, Any]], lanes: Sequence[Lane]) -> Iterator[Event]:
    """From the trace that had the flag set, through the call that was refused, to the step that failed of it.

    A flow needs a slice at each end: the trace's own, and one of no length where the call was refused and the step failed.
    """
    number = 0
    windows = [[span for span in split(lane.spans)[0] if span.kind == TRACE] for lane in lanes]
    victims = {(mark.at, lane.thread): place for place, lane in enumerate(lanes) for mark in lane.marks}
    for event in events:
        victim = victims.get((event["t"], str(event.get("th")))) if event.get("k") == "flag.checked" else None
        if victim is None:
            continue
        names = str(event.get("tracers", "")).split(",")
        found = [(place, _latest(windows[place], event["t"])) for place in _of(lanes, names) if place != victim]
        begins = [(place, at) for place, at in found if at is not None]
        if not begins:
            continue
        ends = [(event["t"], "refused: FX flag set"), *_failure(lanes[victim], event["t"])]
        for at, name in ends:
            common = {"ph": "X", "pid": PID, "tid": victim + 1, "name": name, "cat": "error"}
            yield {**common, "ts": _us(at), "dur": 0.0, "args": {}}
        for tracer, begin in begins:
            number += 1
            common = {"pid": PID, "name": "FX window → error", "cat": "fx", "id": number}
            yield {"ph": "s", **common, "tid": tracer + 1, "ts": _us(begin)}
            for step, (at, _) in enumerate(ends):
                last = step == len(ends) - 1
                yield {"ph": "f" if last else "t", **common, "tid": victim + 1, "ts": _us(at), "bp": "e"}


def _of(lanes: Sequence[Lane], names: Iterable[str]) -> list[int]:
    """The tracks of these workers, or of threads that are called so."""
    wanted = set(names) - {""}
    return [place for place, lane in enumerate(lanes) if lane.worker in wanted or lane.thread in wanted]


def _latest(windows: Iterable[Span], at: int) -> int | None:
    """The last moment up to `at` within one of these: the flag was read a little before its event was written."""
    return max((min(span.end, at) for span in windows if span.start <= at), default=None)


def _failure(lane: Lane, at: int) -> list[tuple[int, str]]:
    """The first failed step from then on, unless a good one came before it."""
    ended = sorted((mark.at, mark.kind) for mark in lane.marks if mark.kind in ("step.failed", "step.done"))
    after = ended[bisect.bisect_left(ended, (at, "")) :]
    return [(after[0][0], "step failed")] if after and after[0][1] == "step.failed" else []


def _name(span: Span) -> str:
    prefix = {HOLD: "holds ", WAIT: "waits for "}.get(span.kind, "")
    return prefix + _text(span.name)


def _args(span: Span) -> dict[str, Any]:
    args: dict[str, Any] = {"worker": _text(span.worker)} if span.worker else {}
    if span.flags & BAD:
        args["failed"] = True
    if span.flags & OPEN:
        args["still open at the end of the log"] = True
    return args


def _text(text: str) -> str:
    return visible(one_line(text, LONGEST_TEXT))


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000
