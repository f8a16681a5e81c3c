"""What the start server's preload leaves behind: nothing that a fork would suffer from."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

ASK = """
import json, os, sys
from harness.subject import server
version, fork, why = server.preload(sys.argv[1])
import torch
print(json.dumps({
    "fork": fork,
    "why": why,
    "initialised": torch.cuda.is_initialized(),
    "driver_open": any("nvidia" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                       if os.path.islink(f"/proc/self/fd/{fd}")),
    "threads": len(os.listdir("/proc/self/task")),
    "heavy": sorted({"transformers", "torch._inductor.compile_fx"} & set(sys.modules)),
}))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_no_preload_initialises_cuda_or_leaves_a_thread(kind: str) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    done = subprocess.run([sys.executable, "-c", ASK, kind], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["initialised"]
    if kind == "cpu" and torch.cuda.is_available():
        return  # there that preload is not the one that is used
    assert not found["driver_open"], "the driver was opened: a fork would inherit its state"
    assert found["threads"] == 1
    assert found["fork"], found["why"]
    if kind == "cuda":
        assert found["heavy"] == []
