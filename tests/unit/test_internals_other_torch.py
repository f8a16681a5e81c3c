"""The adapters' tests, once more under each interpreter that HARNESS_OTHER_PYTHONS names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = [python for python in os.environ.get("HARNESS_OTHER_PYTHONS", "").split(os.pathsep) if python]
FILES = sorted(set(Path(__file__).parent.glob("test_internals_*.py")) - {Path(__file__)})


@pytest.mark.other_torch
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not PYTHONS, reason="HARNESS_OTHER_PYTHONS names no interpreter")
@pytest.mark.parametrize("python", PYTHONS or [""])
def test_the_adapters_tests_pass_under(python: str) -> None:
    ended = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, FILES)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HARNESS_OTHER_PYTHONS": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
