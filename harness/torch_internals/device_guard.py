"""Keeps a CUDA build of torch from crashing on a machine without a GPU.

Private name: `torch._C._ensureCUDADeviceGuardSet`. Seen on torch 2.11 (CUDA build): when the first thread
that ever compiled has ended, the next compile in another thread dies with SIGSEGV. Calling this once on a
thread that stays alive avoids it. Harmless where it is not needed, so it is called wherever the name exists
(2.11, 2.12.1, 2.13 and 2.14.1 have it). Not a race of the program under test, and not to be mistaken for one.
"""

from __future__ import annotations

import threading

import torch

from harness.torch_internals.base import AVAILABLE, Availability, missing

_NAME = "_ensureCUDADeviceGuardSet"


def ensure_device_guard() -> Availability:
    """Call it on the main thread before any worker compiles. RuntimeError: called on another thread."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("call ensure_device_guard on the main thread, which outlives the workers")
    ensure = getattr(torch._C, _NAME, None)
    if ensure is None:
        return missing("torch._C", _NAME)
    ensure()
    return AVAILABLE
