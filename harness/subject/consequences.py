"""Which errors of a process are only there because of an earlier one."""

from __future__ import annotations

from .record import Trial

HOOKS_ASTRAY = ("SavedTensorHooks.cpp", "torch.utils.checkpoint:")
"""What the errors of the hazard `checkpoint-hooks-astray` say."""


def mark_consequences(trial: Trial, torch_version: str = "") -> None:
    """Errors that are only there because of an earlier one.

    The thread that was tracing when another was refused can fail too: that one ran under its patches of
    `nn.Module.__call__` until then. And up to torch 2.12 an exception inside a non-reentrant checkpoint leaves that
    checkpoint's hooks behind on its thread, until the traceback is dropped, by whichever thread: both then fail, at
    checkpoints that have nothing to do with it (hazard `checkpoint-hooks-astray`).
    """
    if torch_version and _before_2_13(torch_version):
        first = min((error.at_ns for error in trial.errors), default=0)
        for error in trial.errors:
            astray = any(piece in error.message for piece in HOOKS_ASTRAY)
            if error.label == "error" and error.at_ns > first and astray:
                error.consequence = True
    collided = [error for error in trial.errors if error.label == "fx_error"]
    for error in trial.errors:
        if error.label == "error" and any(
            first.at_ns < error.at_ns and any(tracer["worker"] == error.worker for tracer in first.tracers)
            for first in collided
        ):
            error.consequence = True


def _before_2_13(torch_version: str) -> bool:
    from harness.core.versions import parse_version  # a watch, which asks for no version, starts without it

    return parse_version(torch_version) < (2, 13)
