"""What the live display shows: `state.json`, twice a second at most, and only where a display was asked for."""

from __future__ import annotations

import json
import os
from typing import Any

from harness.core.waitgraph import Edge

from .process import Watched

EVERY_S = 0.5
MOST_THREADS = 40


class LiveState:
    """Written by the watchdog's thread."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._written = 0.0

    def look(self, now: float, edges: list[Edge]) -> None:
        """Write it, if it is time."""
        if now - self._written < EVERY_S:
            return
        self._written = now
        partial = self._watched.folder / "state.part"
        partial.write_text(json.dumps(self._state(edges)) + "\n", encoding="utf-8")
        os.replace(partial, self._watched.folder / "state.json")

    def _state(self, edges: list[Edge]) -> dict[str, Any]:
        watched = self._watched
        waits: dict[str, str] = {}
        for edge in edges:
            waits.setdefault(edge.waiter, f"{edge.what}, held by {edge.holder}")
        threads = []
        for thread in list(watched.threads.by_ident.values())[:MOST_THREADS]:
            tally = watched.trial.workers.get(thread.worker)
            sums = watched.threads.sums.get(thread.worker)
            threads.append(
                {
                    "name": thread.label(),
                    "region": thread.region,
                    "doing": _doing(thread.compiling, thread.tracing, thread.in_engine),
                    "waits": waits.get(thread.label(), ""),
                    "steps": 0 if sums is None else sums.steps,
                    "compiles": 0 if tally is None else tally.compiles,
                    "dense": 0 if tally is None else tally.dense_calls,
                }
            )
        return {
            "at_s": watched.log.now_ns() / 1e9,
            "fx_errors": watched.fx_errors,
            "stuck": [one.reason for one in watched.stuck if one.ended_s is None],
            "threads": threads,
        }


def _doing(compiling: int, tracing: int, in_engine: int) -> str:
    return "compiles" if compiling else "traces" if tracing else "in the autograd engine" if in_engine else ""
