"""What a process asks of the kernel for itself, by prctl(2): who may read it, and when it ends. Linux only."""

from __future__ import annotations

import signal

ANYBODY = 2**64 - 1  # PR_SET_PTRACER_ANY
_SET_PTRACER = 0x59616D61  # PR_SET_PTRACER
_SET_PDEATHSIG = 1  # PR_SET_PDEATHSIG


def let_read(pid: int) -> None:
    """Let this process and those below it, or `ANYBODY`, read our memory and stacks, as py-spy does.

    That is for kernels that let only ancestors do so (Yama's scope 1); without Yama it does nothing.
    """
    _prctl(_SET_PTRACER, pid)


def die_with_parent() -> None:
    """End by SIGKILL when the thread that started this process ends."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, argument: int) -> None:
    import ctypes  # not before: a watched program need not have it

    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(argument), 0, 0, 0)
