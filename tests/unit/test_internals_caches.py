from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.torch_internals.caches import LOCAL_ONLY, SWITCHED_OFF, folders, use

ROOT = Path(__file__).resolve().parents[2]

LOOK_UP = """
import json, sys
from pathlib import Path
import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir
from harness.torch_internals.caches import use
use(Path(sys.argv[1]))
print(json.dumps([cache_dir(), triton_cache_dir(0)]))
"""

SWITCHES = """
import json, torch
import torch._functorch.config as functorch, torch._inductor.config as inductor
print(json.dumps([inductor.fx_graph_cache, functorch.enable_autograd_cache]))
"""

TRAIN = """
import json, sys
from pathlib import Path
import torch
from harness.torch_internals.caches import use
from harness.torch_internals.compiles import Compiles

class Sink:
    lowered = 0
    def compile_start(self, what): pass
    def compile_end(self, what, ok): pass
    def backward_lowering_enter(self): self.lowered += 1
    def backward_lowering_exit(self, ok): pass

use(Path(sys.argv[1]))
sink = Sink()
assert Compiles().install(sink).ok
x = torch.ones(3, requires_grad=True)
torch.compile(lambda x: x.cos() + 1)(x).sum().backward()
print(json.dumps(sink.lowered))
"""


def run(script: str, *arguments: str, **environment: str) -> object:
    # Triton is imported by inductor on the way; it is not asked to compile anything on the CPU.
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_two_roots_share_nothing(tmp_path: Path) -> None:
    one, two = folders(tmp_path / "one"), folders(tmp_path / "two")
    assert set(one) == set(two) == {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
    assert not set(one.values()) & set(two.values())


def test_use_makes_the_folders_and_sets_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in folders(tmp_path):
        monkeypatch.setenv(name, "before")
    use(tmp_path / "root")
    for name, folder in folders(tmp_path / "root").items():
        assert os.environ[name] == folder
        assert Path(folder).is_dir()


def test_folders_count_when_they_are_set_after_torch_was_imported(tmp_path: Path) -> None:
    assert run(LOOK_UP, str(tmp_path)) == list(folders(tmp_path).values())


def test_switches_set_before_the_import_switch_the_caches_off() -> None:
    assert run(SWITCHES, **SWITCHED_OFF, **LOCAL_ONLY) == [False, False]


@pytest.mark.slow
def test_a_second_run_with_the_same_root_finds_the_backward_lowered(tmp_path: Path) -> None:
    """Why trials need empty caches: what a warm one skips is what is to be observed."""
    assert run(TRAIN, str(tmp_path)) == 1
    assert run(TRAIN, str(tmp_path)) == 0
    assert run(TRAIN, str(tmp_path / "other")) == 1
