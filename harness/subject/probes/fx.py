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
        thread.collision = tracers(self._threads)
        who = ",".join(found["worker"] or found["thread"] for found in thread.collision)
        self._log.emit("flag.checked", f',"answer":true,"tracers":"{who}"')
        self._points.reach("compiled_call.checked", "true")


def tracers(threads: Threads) -> list[dict[str, str]]:
    """The threads inside a trace now, with their stacks, innermost call last. [] : the flag is set though none is."""
    frames = sys._current_frames()
    found = []
    for thread in list(threads.by_ident.values()):
        if thread.tracing > 0:
            frame = frames.get(thread.ident)
            stack = "" if frame is None else "".join(traceback.format_stack(frame)[-STACK_FRAMES:])
            found.append(
                {"thread": thread.name, "worker": thread.worker, "region": thread.region, "stack": stack}
            )
    return found
