"""A trial's story as the page draws it: columns of small numbers, at most so many events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.report.spans import KINDS, OPEN, Holding, Lane, Mark, Span, Story
from harness.report.text import clip

MOST_EVENTS = 50_000
TICK_NS = 100
NEAR_NS = 500_000_000
"""Around an error, a hang or a flag that was seen set, nothing is left out before everything else is."""

LONGEST_NAME = 240
ALARMS = frozenset({"step.failed", "flag.checked", "dense.call", "hang", "deadlock", "grad.missing", "finding"})
"""Kinds of mark that tell of trouble."""

Columns = dict[str, Any]


def thinned(story: Story, most: int = MOST_EVENTS) -> tuple[Story, str]:
    """The story with at most about `most` events, and what was left out in a sentence, "" for nothing.

    A span counts as two events, as it was written. Left out are the shortest spans, for at first sight they are the
    least to be seen, and plain marks; what is near trouble goes last.
    """
    size = sum(2 * len(lane.spans) + len(lane.marks) for lane in story.lanes)
    if size <= most:
        return story, ""
    alarms = [mark.at for lane in story.lanes for mark in lane.marks if mark.kind in ALARMS][:200]
    near = _near(alarms)
    spans = [(near(span.start, span.end), span.end - span.start) for lane in story.lanes for span in lane.spans]
    marks = sum(len(lane.marks) for lane in story.lanes)
    kept_marks = min(marks, most // 2)
    room = max(0, (most - kept_marks) // 2)
    spans.sort(reverse=True)
    least = spans[room - 1] if 0 < room <= len(spans) else (False, -1)
    lanes, left, budget = [], [kept_marks, spans[:room].count(least)], 0
    for lane in story.lanes:
        kept = []
        for span in lane.spans:
            rank = (near(span.start, span.end), span.end - span.start)
            if rank > least or (rank == least and left[1] > 0):
                kept.append(span)
                left[1] -= rank == least
        alarmed = [mark for mark in lane.marks if mark.kind in ALARMS or left[0] > 0]
        shown = alarmed[: max(left[0], 0)]
        left[0] -= len(shown)
        budget += 2 * len(kept) + len(shown)
        lanes.append(replace(lane, spans=kept, marks=shown))
    number = size - budget
    held = {name: _longest(holds, most // 10) for name, holds in story.held.items()}
    said = f"Left out of {size:,} events: {number:,}, the shortest spans first ({least[1] / 1e3:,.0f} µs and less)."
    return replace(story, lanes=tuple(lanes), held=held), said


def columns(story: Story, left_out: str) -> Columns:
    """The story as JSON: times in ticks of 100 ns, starts as differences, names as numbers."""
    names: dict[str, int] = {}

    def number(text: str) -> int:
        return names.setdefault(clip(text, LONGEST_NAME), len(names))

    lanes = [_lane(lane, number) for lane in story.lanes]
    held = [{"name": clip(name, LONGEST_NAME), **_holds(holds)} for name, holds in story.held.items()]
    return {
        "end": story.end // TICK_NS,
        "events": story.events,
        "leftOut": left_out,
        "kinds": list(KINDS),
        "lanes": lanes,
        "held": held,
        "names": list(names),
    }


def _lane(lane: Lane, number: Any) -> Columns:
    spans: list[Span] = lane.spans
    marks: list[Mark] = lane.marks
    begun = [span.start // TICK_NS for span in spans]
    return {
        "thread": clip(lane.thread, LONGEST_NAME),
        "worker": clip(lane.worker, LONGEST_NAME),
        "role": lane.role,
        "rows": lane.rows,
        "start": _differences(begun),
        "length": [span.end // TICK_NS - start for span, start in zip(spans, begun, strict=True)],
        "row": [span.depth for span in spans],
        "kind": [KINDS.index(span.kind) for span in spans],
        "name": [number(_label(span, lane)) for span in spans],
        "flags": [span.flags for span in spans],
        "marks": {
            "at": _differences([mark.at // TICK_NS for mark in marks]),
            "kind": [number(mark.kind) for mark in marks],
            "text": [number(mark.text) for mark in marks],
        },
    }


def _label(span: Span, lane: Lane) -> str:
    """A device thread works for several workers: which, is part of what it did."""
    name = f"{span.name} (for {span.worker})" if span.worker and span.worker != lane.worker else span.name
    return f"{name}, not ended" if span.flags & OPEN else name


def _holds(holds: list[Holding]) -> Columns:
    rows: list[int] = []
    ends: list[int] = []
    for hold in holds:
        row = next((place for place, end in enumerate(ends) if end <= hold.start), len(ends))
        ends[row : row + 1] = [hold.end]
        rows.append(row)
    begun = [hold.start // TICK_NS for hold in holds]
    return {
        "rows": len(ends),
        "start": _differences(begun),
        "length": [hold.end // TICK_NS - start for hold, start in zip(holds, begun, strict=True)],
        "lane": [hold.lane for hold in holds],
        "row": rows,
    }


def _differences(values: list[int]) -> list[int]:
    return [value - before for before, value in zip([0, *values], values, strict=False)]


def _near(alarms: list[int]) -> Any:
    """A test whether something lies close to one of these moments."""
    if not alarms:
        return lambda _start, _end: False
    import bisect

    ordered = sorted(alarms)

    def near(start: int, end: int) -> bool:
        place = bisect.bisect_left(ordered, start - NEAR_NS)
        return place < len(ordered) and ordered[place] <= end + NEAR_NS

    return near


def _longest(holds: list[Holding], most: int) -> list[Holding]:
    if len(holds) <= most:
        return holds
    return sorted(sorted(holds, key=lambda hold: hold.start - hold.end)[:most])
