"""Who was where and held what at one moment of a trial. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.report.spans import BAD, COMPILE, HOLD, LOWERING, OPEN, QUEUE, REGION, TRACE, WAIT, Lane, Span, Story

GATE = "lock gate"
"""Of compile_gate and warm_gate: the one lock of a strategy that several may hold."""

LONGEST_UNWINDING_NS = 5_000_000_000
"""An error is recorded after it was raised; what is further back belongs to another."""


@dataclass(frozen=True)
class Standing:
    """One thread at the moment: the regions it was in, and what it held, waited for and was doing."""

    thread: str
    regions: str
    holds: tuple[str, ...]
    waits: tuple[str, ...]
    doing: tuple[str, ...]


def at(story: Story, moment: int) -> list[Standing]:
    """Every thread that was in anything at that moment (ns)."""
    engine_threads = any(lane.thread.startswith("autograd-") for lane in story.lanes)
    found = [_standing(story, lane, moment, engine_threads) for lane in story.lanes]
    return [one for one in found if one.regions or one.holds or one.waits or one.doing]


def lane_of(story: Story, thread: str, worker: str) -> int | None:
    """The place of a thread's lane, by its name, else by its worker; None where the log does not have it."""
    for number, lane in enumerate(story.lanes):
        if lane.thread == thread:
            return number
    return next((number for number, lane in enumerate(story.lanes) if worker and lane.worker == worker), None)


def moment_of(story: Story, error: Mapping[str, Any]) -> int | None:
    """When an error was raised (ns): at the answer of the flag check, or where it left its innermost region.

    None when the log does not show it.
    """
    number = lane_of(story, error["thread"], error["worker"])
    if number is None or error["at_s"] is None:
        return None
    lane, told = story.lanes[number], int(error["at_s"] * 1e9)
    earliest = told - LONGEST_UNWINDING_NS
    checks = [mark.at for mark in lane.marks if mark.kind == "flag.checked" and earliest <= mark.at <= told]
    if error["label"] == "fx_error" and checks:
        return _while_traced(story, checks[-1], {str(tracer["thread"]) for tracer in error.get("tracers", ())})
    done = max((mark.at for mark in lane.marks if mark.kind == "step.done" and mark.at <= told), default=earliest)
    left = [s.end for s in lane.spans if s.kind == REGION and s.flags & BAD and max(done, earliest) <= s.end <= told]
    return min(left) - 1 if left else min(told, story.end)


def _while_traced(story: Story, told: int, tracers: set[str]) -> int:
    """The last moment up to `told` at which one of these threads was tracing; `told` where the log shows none.

    An answer is written down after the stacks of those who traced, which takes a while: by then they may have ended.
    """
    windows = [s for lane in story.lanes if lane.thread in tracers for s in lane.spans if s.kind == TRACE]
    before = [min(told, s.end - 1) for s in windows if told - LONGEST_UNWINDING_NS <= s.start <= told]
    return max(before, default=told)


def _standing(story: Story, lane: Lane, moment: int, engine_threads: bool) -> Standing:
    """`engine_threads`: autograd has threads of its own here, so who is in the engine waits for one; on the CPU it works."""
    inside = sorted((s for s in lane.spans if s.start <= moment < s.end or s.start <= moment == s.end), key=_depth)
    by_kind = {kind: [span.name for span in inside if span.kind == kind] for kind in (REGION, WAIT, QUEUE)}
    worker = next((span.worker for span in reversed(inside) if span.worker), lane.worker)
    doing = list(dict.fromkeys(_doing(span.kind, span.name) for span in inside))
    in_engine = any(span.kind == "engine" for span in inside)
    return Standing(
        lane.thread if worker in ("", lane.thread) else f"{lane.thread} (for {worker})",
        " › ".join(by_kind[REGION]),
        tuple(f"{span.name}{_mode(story, span)}" for span in inside if span.kind == HOLD),
        (*by_kind[WAIT], *by_kind[QUEUE], *(("autograd's thread",) if in_engine and engine_threads else ())),
        tuple(filter(None, doing)),
    )


def _mode(story: Story, hold: Span) -> str:
    """` (shared)`, ` (exclusive)`, or "" where the log does not prove which.

    Events carry no mode, but a hold keeps the one that it began with, and what the log has of it lies within the hold
    itself. So a hold that another worker's overlaps was shared. And no key is known before the gate was first given
    back, so until then it is held exclusively.
    """
    if hold.name != GATE:
        return ""
    others = [span for lane in story.lanes for span in lane.spans if span.kind == HOLD and span.name == GATE]
    if any(s.worker != hold.worker and s.start < hold.end and hold.start < s.end for s in others):
        return " (shared)"
    ended = [span.end for span in others if not span.flags & OPEN]
    return " (exclusive)" if hold.start <= min(ended, default=hold.start) else ""


def _depth(span: Any) -> int:
    return int(span.depth)


def _doing(kind: str, name: str) -> str:
    if kind == TRACE:
        return "tracing: the FX flag is its own"
    return name if kind in (COMPILE, LOWERING) else "in the autograd engine" if kind == "engine" else ""
