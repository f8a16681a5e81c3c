"""How much processor time a thread used: what tells a thread that waits from one that is always met at one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

BUSY = 0.1  # of the time between two looks; who uses more does not wait


def cpu_ns(pid: int | str, native_ids: Iterable[int | None]) -> dict[int, int]:
    """Native thread id → nanoseconds on a processor so far; without those for which the system does not say (Linux does)."""
    found = {}
    for native_id in native_ids:
        try:
            found[native_id or 0] = int(Path(f"/proc/{pid}/task/{native_id}/schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            continue  # another system, or the thread has ended
    return found


def asleep(before: Mapping[int, int], after: Mapping[int, int], native_id: int | None, seconds: float) -> bool | None:
    """Whether a thread hardly ran between two looks; None when that is not known."""
    if native_id not in before or native_id not in after or native_id is None:
        return None
    return after[native_id] - before[native_id] < BUSY * seconds * 1e9
