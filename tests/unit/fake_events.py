"""Event logs without subjects: the story of one collision, and logs of any length."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MS = 1_000_000


def event(ms: float, thread: str, kind: str, **more: Any) -> dict[str, Any]:
    """One event of a worker's own thread."""
    return {"t": int(ms * MS), "th": thread, "id": sum(map(ord, thread)), "w": thread, "k": kind, **more}


def region(thread: str, name: str, enter: float, leave: float, **more: Any) -> list[dict[str, Any]]:
    return [event(enter, thread, "region.enter", r=name), event(leave, thread, "region.exit", r=name, **more)]


def collision() -> list[dict[str, Any]]:
    """drafter-0 compiles and traces from 20 to 40 ms, drafter-2 waits for the compile lock meanwhile; drafter-1 is told
    at 45 ms that somebody traces, and fails; drafter-0 goes on and ends well.
    """
    found = [
        event(0, "MainThread", "subject.start"),
        event(1, "target-0", "wait.enter", what="queue.put"),
        event(9, "target-0", "wait.exit", what="queue.put"),
        event(9.5, "target-0", "step.done", step=0, tokens=90, loss=None),
        *region("drafter-0", "step", 5, 80),
        *region("drafter-0", "forward", 6, 70),
        event(10, "drafter-0", "compile_lock.acquired"),
        event(11, "drafter-0", "compile.start", what="frame"),
        event(20, "drafter-0", "fx.trace.enter"),
        event(25, "drafter-0", "fx.trace.enter"),
        event(30, "drafter-0", "fx.trace.exit"),
        event(40, "drafter-0", "fx.trace.exit"),
        event(60, "drafter-0", "compile.end", what="frame", ok=True),
        event(62, "drafter-0", "compile_lock.released"),
        event(75, "drafter-0", "memory", d="cuda:0", a=2**30, r=2**31),
        event(79, "drafter-0", "step.done", step=0, tokens=90, loss=5.5),
        *region("drafter-1", "step", 7, 46.3, error=1),
        *region("drafter-1", "attention", 8, 46.1, error=1),
        event(45, "drafter-1", "flag.checked", answer=True, tracers="drafter-0"),
        event(47, "drafter-1", "step.failed", step=0, label="fx_error", error="RuntimeError"),
        event(12, "drafter-2", "compile_lock.wait"),
        event(62.5, "drafter-2", "compile_lock.acquired"),
        event(90, "MainThread", "subject.end"),
    ]
    return sorted(found, key=lambda one: one["t"])


def long_log(events: int, threads: int = 4) -> list[dict[str, Any]]:
    """About so many events: steps of nested regions, with a trace in each tenth and a failed step at the end."""
    found: list[dict[str, Any]] = []
    steps = max(1, events // (9 * threads))
    for thread in range(threads):
        name = f"drafter-{thread}"
        for step in range(steps):
            at = 4.0 * step + 0.3 * thread + (step * 7919 + thread * 104729) % 1000 / 5000  # as uneven as time is
            found += region(name, "step", at, at + 3.5)
            found += region(name, "forward", at + 0.1, at + 1.8)
            found += region(name, "attention", at + 0.3, at + 1.2)
            found += region(name, "backward", at + 2.0, at + 3.4)
            found.append(event(at + 3.45, name, "step.done", step=step, tokens=10, loss=1.0))
    found.append(event(4.0 * steps, "drafter-0", "step.failed", step=steps, label="fx_error", error="RuntimeError"))
    return sorted(found, key=lambda one: one["t"])


def write_events(run: Path, trial: str, events: Iterable[Mapping[str, Any]]) -> Path:
    """The log of a trial in a run folder."""
    folder = run / "trials" / trial
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "events.jsonl", "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(json.dumps(one, separators=(",", ":")) + "\n" for one in events)
    return folder / "events.jsonl"


MATRIX = """\
schema = 1
[axes]
lock = ["none", "first_step", "compile_gate"]
checkpoint = ["none", "reentrant"]
shapes = ["fixed", "variable"]
mask = ["eager", "compiled"]
"""


def collision_rows() -> list[dict[str, Any]]:
    """Rows of `MATRIX`, four trials each: without a lock and with fixed shapes two of them collide."""
    from fake_folder import TRACED
    from fake_runs import row

    from harness.core.matrix import parse_matrix

    tracer = {**TRACED["tracers"][0], "thread": "drafter-0", "region": "forward"}
    error = {**TRACED, "thread": "drafter-1", "at_s": 0.047, "tracers": [tracer]}
    names = ("target-0", "drafter-0", "drafter-1", "drafter-2")
    workers = {name: {"role": name[:-2], "compiles": 1, "steps_ok": 1, "facts": {}} for name in names}
    locks = {"strategy": {"waits": 2, "taken": 3, "wait_s": 1.5, "hold_s": 2.5}}
    rows = []
    for scenario in parse_matrix(MATRIX, file="m").scenarios:
        for repeat in range(4):
            one = row(scenario, repeat, workers=workers, startup_s=4.0 + repeat / 3, probes={"dense": "ok"})
            if scenario.lock != "none":
                one["locks"] = locks
            elif scenario.shapes == "fixed" and repeat % 2:
                one.update(outcome="fx_error", outcomes=["fx_error"], errors=[error], fx_errors=1, tokens_per_s=None)
            rows.append(one)
    return rows


def collision_folder(path: Path) -> Path:
    """A run with the logs of all its trials; in those that failed, a collision."""
    from fake_folder import write_folder

    rows = collision_rows()
    write_folder(path, rows, matrix=MATRIX)
    for one in rows:
        write_events(path, one["trial"], collision() if one["errors"] else long_log(400))
    return path
