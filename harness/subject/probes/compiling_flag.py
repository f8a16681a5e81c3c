"""`torch.compiler.is_compiling()` as seen by a thread that compiles nothing: it then takes the wrong branch.

Sampled at both ends of every region and before every optimizer step, since code between them asks. A count by worker,
and an event at a thread's first leak; no failure by itself, for it harms only code that branches on the answer.
"""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook

from harness.torch_internals.compiling_flag import compiling_now

from .base import Quiet, Scope


class CompilingFlagProbe(Quiet):
    """Reads one module attribute a sample."""

    name = "is_compiling"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._threads = scope.threads
        self._trial = scope.trial
        self._seen: set[int] = set()  # threads whose last sample was a leak

    def install(self) -> str:
        """Adds a hook before optimizer steps."""
        if compiling_now() is None:
            return "unavailable: this torch keeps the flag elsewhere"
        register_optimizer_step_pre_hook(self._before_step)
        return "ok"

    def _before_step(self, *_: Any) -> None:
        self.sample()

    def sample(self) -> None:
        """True here, though this thread is in no compile: another one is."""
        if not compiling_now():
            return
        thread = self._threads.current()
        if thread.compiling or thread.tracing:
            return
        if thread.worker:
            counts = self._trial.tally(thread.worker).counts
            counts["is_compiling_leaks"] = counts.get("is_compiling_leaks", 0) + 1
        if thread.ident not in self._seen:
            self._seen.add(thread.ident)
            self._log.emit("is_compiling.leak")
