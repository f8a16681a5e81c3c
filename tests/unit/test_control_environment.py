"""Facts about where a run takes place, and what is kept out of them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from harness.control import environment as module
from harness.control.environment import allowed_variables, describe_environment
from harness.control.interpreter import ask_doctor, describe_python, find_python
from harness.control.matrices import refuse_other_matrix
from harness.control.skips import skip_reason
from harness.core.errors import RunFolderError, UserError
from harness.core.scenario import Scenario

ROOT = Path(module.__file__).parents[2]


def test_only_what_is_allowed_and_no_secret() -> None:
    environ = {
        "TORCH_LOGS": "dynamo",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/x",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_TOKEN": "hf_abc",
        "AWS_SECRET_ACCESS_KEY": "abc",
        "TORCH_API_TOKEN": "abc",
        "PYTORCH_SECRET": "abc",
        "TORCHINDUCTOR_REMOTE": "redis://user:abc@host",
        "TORCHINDUCTOR_REDIS": "redis://host",
        "HOME": "/root",
        "PATH": "/bin",
    }
    assert list(allowed_variables(environ)) == [
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TOKENIZERS_PARALLELISM",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_LOGS",
    ]


def test_facts_of_this_interpreter() -> None:
    facts = describe_environment(sys.executable, ["run", "quick"])
    assert facts["python"] == platform.python_version()
    assert str(facts["torch"]).startswith(importlib.metadata.version("torch").split("+")[0])
    assert facts["command"] == ["harness", "run", "quick"]
    assert facts["cores"] >= facts["cores_usable"] >= 1
    assert facts["memory_bytes"] > 1 << 20
    assert sys.platform != "linux" or facts["memory_usable_bytes"] > 1 << 20


def test_torch_is_not_imported_to_be_described() -> None:
    script = (
        "import sys\nfrom harness.control.environment import describe_environment\n"
        "assert describe_environment(sys.executable)['torch']\nassert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_another_interpreter_is_asked_and_says_the_same(tmp_path: Path) -> None:
    """A link to this one is another path, so a subprocess is asked."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    mine, theirs = describe_python(sys.executable), describe_python(str(other))
    assert {**theirs, "executable": ""} == {**mine, "executable": ""}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo oops >&2; exit 3", "oops"),
        ("echo '[]'", "not a Python interpreter"),
        ('echo \'{"python": "3.8.1"}\'', "too old"),
    ],
)
def test_what_is_no_interpreter_is_an_error(tmp_path: Path, script: str, words: str) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    fake.chmod(0o755)
    with pytest.raises(UserError, match=words):
        describe_python(str(fake))


def test_the_link_of_a_virtual_environment_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python-link").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_python("./python-link") == str(tmp_path / "python-link") == find_python("python-link")
    assert find_python(None) == sys.executable
    with pytest.raises(UserError, match="no such program"):
        find_python(str(tmp_path))


def test_a_doctor_that_dies_is_a_finding(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\n[ "$1" = - ] && exec "{sys.executable}" -\necho "libfoo is missing" >&2\nexit 1\n')
    fake.chmod(0o755)
    answer = ask_doctor(str(fake))
    assert answer["problems"] == ["the subject's doctor ended with exit status 1: libfoo is missing"]
    assert answer["torch"]


GPU = {"name": "H200", "memory_mib": 143771, "driver": "1"}


@pytest.mark.parametrize(
    ("axes", "torch", "count", "visible", "words"),
    [
        ({}, "2.13.0+cpu", 0, None, ""),
        ({"backend": "inductor"}, "2.13.0+cpu", 0, None, "no flex_attention with gradients"),
        ({"backend": "inductor", "compile": "none"}, "2.13.0+cpu", 0, None, ""),
        ({"backend": "inductor", "workload": "small"}, "2.13.0+cpu", 0, None, ""),
        ({"cudagraphs": "trees"}, "2.13.0+cpu", 0, None, "needs a CUDA device"),
        ({"devices": "cuda:0"}, "2.13.0+cpu", 1, None, "CUDA build of torch"),
        ({"devices": "cuda:0"}, "2.11.0+cu130", 0, None, "needs 1 CUDA device"),
        ({"devices": "cuda:0+cuda:1"}, "2.11.0+cu130", 1, None, "needs 2 CUDA device"),
        ({"devices": "cuda:0+cuda:1"}, "2.11.0+cu130", 2, None, ""),
        ({"devices": "cuda:0+cuda:1"}, "2.11.0+cu130", 2, "1", "needs 2 CUDA device"),
        ({"devices": "cuda:0"}, "2.11.0+cu130", 2, "", "; 0 here"),
        ({"devices": "cuda:0"}, "2.11.0+cu130", 2, "-1", "; 0 here"),
        ({"devices": "cuda:0"}, "2.11.0+cu130", 2, "GPU-abc", ""),
        ({"devices": "cuda:0", "backend": "inductor", "cudagraphs": "trees"}, "2.11.0+cu130", 1, None, ""),
    ],
)
def test_what_cannot_run_here(axes: dict[str, str], torch: str, count: int, visible: str | None, words: str) -> None:
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    environment = {"torch": torch, "gpus": [GPU] * count, "variables": variables}
    reason = skip_reason(Scenario(**axes), environment, {})  # type: ignore[arg-type]
    assert (words in reason) if words else reason == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("schema = 1\n[axes]\nlock = ['none']\n", None),
        ("schema = 1 # why\n\n[axes]\nlock = [ 'none' ]\n", None),
        ("schema = 1\n[axes]\nlock = ['none', 'per_call']\n", "axes.lock with 'per_call'"),
        ("schema = 1\n[axes]\nlock = []\n", "axes.lock without 'none'"),
        ("schema = 1\n[axes]\n", "axes.lock = .* is gone"),
        ("schema = 1\n[axes]\nlock = ['none']\n[defaults]\nsteps = 3\n", "defaults = .* is new"),
        ("schema = true\n[axes]\nlock = ['none']\n", "schema was 1, is True"),
    ],
)
def test_the_difference_of_two_matrices(asked: str, words: str | None) -> None:
    begun = "schema = 1\n[axes]\nlock = ['none']\n"
    if words is None:
        refuse_other_matrix(Path("run"), begun, asked, Path("m.toml"))
    else:
        with pytest.raises(RunFolderError, match=words):
            refuse_other_matrix(Path("run"), begun, asked, Path("m.toml"))


def test_the_environment_of_the_machine_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PRIVATE_THING", "do-not-copy")
    assert "do-not-copy" not in str(describe_environment(sys.executable, []))
    assert os.environ["MY_PRIVATE_THING"] == "do-not-copy"
