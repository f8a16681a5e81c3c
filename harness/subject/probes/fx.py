"""Who is inside an FX trace, and who is told by a compiled callable that one is going on.

When a thread that traces nothing gets the answer True, the threads that are inside a trace at that very moment are
noted with worker, region and stack: the other half of every FX error.
"""

from __future__ import annotations

import sys
import traceback

from harness.torch_internals.flag_check import FlagCheck
from harness.torch_internals.fx_trace import FxTrace

from ..identity import Threads
from .base import Quiet, Scope, said

STACK_FRAMES = 60


class FxTraceProbe(Quiet):
    """Events at both ends of every trace; the depth by thread."""

    name = "fx_trace"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._threads = scope.threads
        self._points = scope.points
        self._adapter = FxTrace()

    def install(self) -> str:
        """Wraps `Tracer.trace`."""
        return said(self._adapter.install(self))

    def trace_enter(self) -> None:
        """The flag is not set yet."""
        self._threads.current().tracing += 1
        self._log.emit("fx.trace.enter")

    def trace_exit(self) -> None:
        """The flag is reset."""
        thread = self._threads.current()
        thread.tracing -= 1
        self._log.emit("fx.trace.exit")
        self._points.reach("fx.window.closed", "inner" if thread.tracing else "outermost")

    def window_open(self) -> None:
        """The flag is set."""
        self._points.reach("fx.window.open")

    def window_closing(self) -> None:
        """The flag is about to be reset."""
        self._points.reach("fx.window.closing")


class FlagCheckProbe(Quiet):
    """An event for every True answer; who was tracing is kept for the error that follows."""

    name = "flag_check"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._threads = scope.threads
        self._points = scope.points
        self._adapter = FlagCheck()

    def install(self) -> str:
        """Must come before any compiled callable is called."""
        return said(self._adapter.install(self))

    def check_enter(self) -> None:
        """About to read the flag."""
        if self._points.on:
            self._points.reach("compiled_call.enter")

    def checked(self, answer: bool) -> None:
        """It was read."""
        if not answer:
            if self._points.on:
                self._points.reach("compiled_call.checked", "false")
            return
        thread = self._threads.current()
        inside = tracing(self._threads)
        who = ",".join(tracer["worker"] or tracer["thread"] for tracer, _ in inside)
        self._log.emit("flag.checked", f',"answer":true,"tracers":"{who}"')
        thread.collision = [{**tracer, "stack": text_of(places)} for tracer, places in inside]
        self._points.reach("compiled_call.checked", "true")


Place = tuple[str, int, str]
"""Of a frame: file, line, function."""


def tracing(threads: Threads) -> list[tuple[dict[str, str], list[Place]]]:
    """The threads inside a trace now, in which region, and where they are, innermost call last; [] although the flag is set
    when it was left set.

    Places and no text: to look up the lines of source takes tens of milliseconds the first time, in which those threads
    go on.
    """
    frames = sys._current_frames()
    found = []
    for thread in list(threads.by_ident.values()):
        if thread.tracing > 0:
            places: list[Place] = []
            frame = frames.get(thread.ident)
            while frame is not None and len(places) < STACK_FRAMES:
                places.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
                frame = frame.f_back
            found.append(({"thread": thread.name, "worker": thread.worker, "region": thread.region}, places[::-1]))
    return found


def text_of(places: list[Place]) -> str:
    """As in a traceback, with lines of source."""
    summary = [traceback.FrameSummary(file, line, name, lookup_line=False) for file, line, name in places]
    return "".join(traceback.format_list(summary))
