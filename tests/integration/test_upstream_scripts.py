"""The minimal scripts of the bug reports, on the torch at hand: each fails as it promises, and says so.

One interpreter imports torch and what compiling needs, and forks for every script: a start of their own would cost each
some seconds. Nothing has been compiled, and no thread runs, when it forks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.core.versions import parse_specifier
from harness.hazards import find
from harness.hazards.base import NEEDS
from harness.hazards.minimal import FOLDER, names, shows_on

TIMEOUT_S = 240

DRIVER = """
import json, os, runpy, sys, tempfile, traceback
import torch, torch._dynamo, torch._functorch.aot_autograd, torch._dynamo.backends.debugging
import torch.nn.attention.flex_attention, torch.utils.checkpoint
torch.set_num_threads(1)
found, running, left = {"torch": torch.__version__}, {}, sys.argv[1:]
while left or running:
    while left and len(running) < 3:  # of which some only wait for each other
        path, said = left.pop(0), tempfile.TemporaryFile()
        child = os.fork()
        if child:
            running[child] = path, said
            continue
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        code = 0
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 90
        except BaseException:
            traceback.print_exc()
            code = 91
        sys.stdout.flush()
        os._exit(code)
    child, status = os.wait()
    path, said = running.pop(child)
    said.seek(0)
    found[path] = {"status": os.waitstatus_to_exitcode(status), "said": said.read().decode("utf-8", "replace")}
print(json.dumps(found))
"""

SAYS: Mapping[str, str] = {
    "compile-lock-engine-deadlock": "deadlock",
    "checkpoint-mixed": "d(ab)/da = 2, d(ab)/db = 5",
    "compiling-leak": "which compiles nothing: True",
    "cudagraph-importer-ends": "16 references to each dictionary in a list, 15 and 15 counted",
    "dense-by-config": "ran without being compiled, in silence",
    "dense-by-recompile-limit": "12 shapes of three threads, 8 compiled",
    "dense-by-thread-config": "8 of 12 shapes were compiled",
    "first-step-hole": "Detected that you are using FX",
    "fx-flag-collision": "RuntimeError: Detected that you are using FX",
    "fx-flag-stuck": "nn.Module.__call__ is another function than before",
    "globals-reverted": "deterministic False, numbers of the seed False",
    "module-call-under-trace": "NameError: module is not installed as a submodule",
    "no-grad-warmup": "compiled in MainThread, worker",
    "recompute-collision": "Detected that you are using FX",
    "recompute-collision-reentrant": "Detected that you are using FX",
    "duplicate-compile": "2 graphs of one function",
    "lost-compile-callback": "three compiles, 2 told",
    "module-call-under-trace-silent": "its graph 2 times",
    "recompute-other-graph": "CheckpointError",
    "reentrant-kwargs": "of the layer None",
    "replica-barrier-deadlock": "deadlock",
    "stance-leak": "was not compiled",
    "user-lock-inversion": "deadlock",
}
"""What a script says of a hazard that came about; of those that are not here the exit code tells enough."""


def scripts() -> list[str]:
    """Those that need no CUDA device."""
    return [name for name in names() if not NEEDS[find(name).needs]]


@pytest.fixture(scope="module")
def ran() -> dict[str, Any]:
    """Script → exit status and what it printed; "torch" → its version."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *(str(FOLDER / f"{name}.py") for name in scripts())],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {Path(key).stem if key != "torch" else key: value for key, value in found.items()}


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize("name", scripts())
def test_the_script_shows_its_hazard(name: str, ran: dict[str, Any]) -> None:
    told, torch = ran[name], ran["torch"]
    if parse_specifier(find(name).versions).contains(torch) and shows_on(name, torch):
        assert told["status"] == 1, told["said"]
        assert SAYS.get(name, "torch ") in told["said"]
    else:
        assert told["status"] == 0, f"torch {torch} should not have it: {told['said']}"


def test_a_script_for_cuda_says_that_it_needs_it() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("here is a CUDA device: the script would run")
    for name in names():
        if not NEEDS[find(name).needs]:
            continue
        done = subprocess.run(
            [sys.executable, str(FOLDER / f"{name}.py")], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout) == (2, "needs a CUDA device\n"), done.stderr
