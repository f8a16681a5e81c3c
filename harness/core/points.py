"""The sync points: named places that a thread passes, at which a schedule can hold it.

A point is passed *by a thread*, and most are passed for each occurrence anew. What an occurrence adds is its `info`, a
short text (which lock, which queue, the answer that was read); the second column of `DOCS` says what it is.

Mind on which side of its effect a point lies. `fx.window.open`, `globals.saved`, `*.acquired`, `compiled_call.checked`,
`stance.set` come *after* it, so a thread that is held there has done it. `*.enter`, `fx.window.closing`, `flex_eager.exit`,
`globals.restoring`, `*.wait`, `queue.*` come *before* it, so a thread that is held there has not.
"""

from __future__ import annotations

import re

from harness.core.errors import UserError, nearest

REGION_NAMES: tuple[str, ...] = ("step", "mask", "forward", "attention", "loss", "backward")

DOCS: dict[str, str] = {
    "fx.window.open": "inside fx.Tracer.trace, its flag set and nn.Module patched",
    "fx.window.closing": "still inside, flag and patches about to be taken back",
    "fx.window.closed": 'after the trace, flag and patches taken back; info: "outermost", or "inner" in another trace',
    "compiled_call.enter": "a compiled callable was called and is about to read the FX-tracing flag",
    "compiled_call.checked": 'it has read the flag; info: the answer, "true" or "false"',
    "compile_lock.wait": "torch's compile lock is taken, this thread is about to wait for it",
    "compile_lock.acquired": "this thread holds torch's compile lock (outermost level)",
    "compile_lock.released": "it has let go of it (outermost level)",
    "compile.enter": 'a compile begins, inside the compile lock; info: "frame", "graph" or "operator_graph"',
    "compile.exit": "it has ended, well or not; info as before",
    "backward_lowering.enter": "a backward graph is about to be lowered, at its first use",
    "backward_lowering.exit": "it was, or that failed",
    "engine.enter": "about to hand a graph to the autograd engine",
    "engine.exit": "the engine has returned or raised",
    **{f"region.{name}.enter": f"inside the region {name}, its strategy lock taken if any" for name in REGION_NAMES},
    **{f"region.{name}.exit": f"about to leave the region {name}, lock still held" for name in REGION_NAMES},
    "strategy_lock.wait": "about to wait for a lock of the strategy; info: its name",
    "strategy_lock.acquired": "it is held; info: its name",
    "strategy_lock.released": "about to let go of it; info: its name",
    "barrier.wait": "about to wait at a barrier; info: the strategy's name for it, or the worker",
    "flex_eager.enter": "an eager higher-order operator has saved Dynamo's settings and set its own; info: what it set",
    "flex_eager.exit": "it is about to put the saved settings back",
    "globals.saved": 'process-wide state was saved; info: "frame" (a compile), "rng", "fork_rng" (a checkpoint)',
    "globals.restoring": "it is about to be set back; info as before",
    "globals.restored": "it was set back; info as before",
    "rng.draw": "about to draw from a process-wide generator; info: the function",
    "is_compiling.read": 'torch.compiler.is_compiling() was asked; info: the answer, "true" or "false"',
    "stance.set": "the compiler's stance was set; info: the stance",
    "config.read": "Dynamo is about to decide by its recompile limits, as this thread sees them; info: the limit",
    "cudagraph.record.enter": 'about to record a CUDA graph; info: "trees", or "capture" (by hand)',
    "cudagraph.record.exit": "it was recorded, or that failed; info as before",
    "queue.put": "about to put into a queue, waiting while it is full; info: which",
    "queue.get": "about to take from a queue, waiting while it is empty; info: which",
}
"""Every point that the harness reports, with what it means."""

POINTS: tuple[str, ...] = tuple(DOCS)

CONTENTION: frozenset[str] = frozenset({"compile_lock.wait", "strategy_lock.wait"})
"""Points that are passed only where a thread must really wait: they come and go with timing, so nothing is ordered by
them in a replay."""

_MARK = re.compile(r"mark\.[a-z0-9][a-z0-9_.-]*")


def is_point(name: str) -> bool:
    """A point of the list, or one of the workload's own: `mark.` and a word (`Context.mark`)."""
    return name in DOCS or _MARK.fullmatch(name) is not None


def check_point(name: str) -> str:
    """`name`, if it is a sync point. Raises UserError naming the nearest."""
    if not is_point(name):
        hint = nearest(name, POINTS) or '; see harness.core.points, or "mark.WORD" for a workload\'s own'
        raise UserError(f'no sync point is called "{name}"{hint}')
    return name
