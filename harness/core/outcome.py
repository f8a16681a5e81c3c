"""The labels a trial can have: a closed list."""

from __future__ import annotations

from collections.abc import Sequence

FAILURES: tuple[str, ...] = (
    "fx_error",
    "graph_corrupt",
    "dense",
    "numerics",
    "no_grad",
    "state_leak",
    "deadlock",
    "hang",
    "cudagraph_tls",
    "cudagraph_pool",
    "cudagraph_overwritten",
    "capture_invalidated",
    "cuda_fault",
    "crash",
    "error",
)
"""What the subject did wrong."""

INCOMPLETE: tuple[str, ...] = ("out_of_memory", "setup_error", "interrupted")
"""Why a trial says nothing of the subject."""

OK = "ok"
SKIPPED = "skipped"
"""A scenario that cannot run here; the reason stands in its row."""

LABELS: tuple[str, ...] = (*FAILURES, *INCOMPLETE, OK, SKIPPED)


def is_failure(label: str) -> bool:
    """Whether the label is the subject's fault.

    Raises:
        ValueError: the label is not in the closed list.
    """
    if label not in LABELS:
        raise ValueError(f"not an outcome label: {label!r}")
    return label in FAILURES


def primary(labels: Sequence[str]) -> str:
    """The label that names a trial: of labels in order of time, the first that is not ``ok``; else ``ok``.

    Raises:
        ValueError: a label that is not in the closed list.
    """
    for label in labels:
        if label not in LABELS:
            raise ValueError(f"not an outcome label: {label!r}")
    return next((label for label in labels if label != OK), OK)
