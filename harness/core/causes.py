"""Which errors of a process are only there because of an earlier one, and in which order the others name its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

MOST_ERRORS = 200
"""Kept of a process, with full tracebacks; more are counted. In `errors.jsonl`, in `result.json` and in a row alike."""

HOOKS_ASTRAY = ("SavedTensorHooks.cpp", "torch.utils.checkpoint:")
"""What the errors of the hazard `checkpoint-hooks-astray` say."""


class Raised(Protocol):
    """What has to be known of an error. `tracers`: who was inside a trace at that moment."""

    label: str
    message: str
    worker: str
    at_ns: int
    tracers: list[dict[str, str]]
    consequence: bool


def mark_consequences(errors: Sequence[Raised], torch_version: str = "") -> None:
    """Errors that are only there because of an earlier one.

    The thread that was tracing when another was refused can fail too: that one ran under its patches of
    `nn.Module.__call__` until then. And up to torch 2.12 an exception inside a non-reentrant checkpoint leaves that
    checkpoint's hooks behind on its thread, until the traceback is dropped, by whichever thread: both then fail, at
    checkpoints that have nothing to do with it (hazard `checkpoint-hooks-astray`).
    """
    if torch_version and _before_2_13(torch_version):
        first = min((error.at_ns for error in errors), default=0)
        for error in errors:
            astray = any(piece in error.message for piece in HOOKS_ASTRAY)
            if error.label == "error" and error.at_ns > first and astray:
                error.consequence = True
    collided = [error for error in errors if error.label == "fx_error"]
    for error in errors:
        if error.label == "error" and any(
            first.at_ns < error.at_ns and any(_worker_of(tracer) == error.worker for tracer in first.tracers)
            for first in collided
        ):
            error.consequence = True


def labels_by_time(errors: Sequence[Raised], problems: Iterable[tuple[int, str]], dense_ns: int | None) -> list[str]:
    """Labels, the earliest cause first and consequences left out.

    `problems`: (at ns, label) of what is no exception. `dense_ns`: of the first call that ran uncompiled and should not.
    """
    found = [*((error.at_ns, error.label) for error in errors if not error.consequence), *problems]
    if not found:  # a consequence without its cause is a cause
        found = [(error.at_ns, error.label) for error in errors]
    if dense_ns is not None:
        found.append((dense_ns, "dense"))
    found.sort(key=lambda pair: pair[0])
    return list(dict.fromkeys(label for _, label in found))


def _worker_of(tracer: Mapping[str, str]) -> str | None:
    return tracer.get("worker")


def _before_2_13(torch_version: str) -> bool:
    from harness.core.versions import parse_version  # a watch, which asks for no version, starts without it

    return parse_version(torch_version) < (2, 13)
