"""Why a trial that ended well has no throughput: from its row. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DRAFTER = "drafter"


def why_no_rate(row: Mapping[str, Any]) -> str:
    """A sentence for a row with the outcome ok and no `tokens_per_s`; "" where it tells of no worker that takes steps.

    Throughput is of the drafters, else of all who take steps, between the last one's first good step and the first one's
    last (`harness.subject.record.Trial.window`).
    """
    workers = [worker for worker in (row.get("workers") or {}).values() if isinstance(worker, Mapping)]
    steppers = [worker for worker in workers if worker.get("role") == DRAFTER]
    steppers = steppers or [worker for worker in workers if worker.get("role")]
    steppers = steppers or [worker for worker in workers if worker.get("steps_ok")]
    if not steppers:
        return ""
    counts = [int(worker.get("steps_ok") or 0) for worker in steppers]
    if not min(counts):
        return f"{counts.count(0)} of {len(counts)} workers had no good step, so they were never all warm"
    if not any(worker.get("tokens") for worker in steppers):
        return "its steps count no tokens (the second argument of context.step), so there is no rate"
    least, most = min(counts), max(counts)
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    step = "step" if most == 1 else "steps"
    who = "the one worker" if len(counts) == 1 else f"all {len(counts)} workers"
    were = "was" if len(counts) == 1 else "were"
    after = "after its first" if len(counts) == 1 else "between the last one's first and the first one's last"
    return f"no step ended while {who} {were} warm and at work, {after} ({each} {step} each); more steps would tell"
