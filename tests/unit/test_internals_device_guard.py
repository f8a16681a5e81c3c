from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from internals_support import in_thread

from harness.torch_internals.device_guard import ensure_device_guard

ROOT = Path(__file__).resolve().parents[2]

FIRST_THREAD_ENDS = """
import threading, torch
from harness.torch_internals.device_guard import ensure_device_guard
assert ensure_device_guard().ok

def work(length):
    torch.compile(lambda x: x.sin(), backend="aot_eager", dynamic=False)(torch.ones(length, requires_grad=True))

for length in (2, 3):
    thread = threading.Thread(target=work, args=(length,))
    thread.start()
    thread.join(100)
    assert not thread.is_alive()
print("survived")
"""


def test_compiles_survive_the_end_of_the_first_compiling_thread() -> None:
    """Without the call a CUDA build of torch 2.11 dies here with SIGSEGV on a machine without a GPU."""
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_THREAD_ENDS],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "survived"), ended.stderr


def test_only_the_main_thread_may_call_it() -> None:
    with pytest.raises(RuntimeError, match="main thread"):
        in_thread(ensure_device_guard)


def test_a_torch_without_the_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_ensureCUDADeviceGuardSet")
    answer = ensure_device_guard()
    assert not answer.ok
    assert "_ensureCUDADeviceGuardSet" in answer.reason
