"""Calls of `flex_attention` that ran outside a compiled graph, by worker."""

from __future__ import annotations

import sys
import traceback

from harness.torch_internals.dense import Dense

from .base import Quiet, Scope, said


class DenseProbe(Quiet):
    """Counts, and keeps the stack of each worker's first such call."""

    name = "dense"

    def __init__(self, scope: Scope) -> None:
        self._log = scope.log
        self._threads = scope.threads
        self._trial = scope.trial
        self._adapter = Dense()

    def install(self) -> str:
        """Wraps what `flex_attention` calls first."""
        return said(self._adapter.install(self))

    def dense_call(self) -> None:
        """On the thread that runs attention uncompiled."""
        thread = self._threads.current()
        at = self._log.emit("dense.call")
        trial = self._trial
        if trial.first_dense_ns is None:
            trial.first_dense_ns = at
        if not thread.worker:
            trial.other_dense_calls += 1
            return
        tally = trial.tally(thread.worker)
        tally.dense_calls += 1
        if "first_dense_stack" not in tally.facts:
            tally.facts["first_dense_step"] = thread.step
            tally.facts["first_dense_stack"] = "".join(traceback.format_stack(sys._getframe(1))[-30:])
