"""Paths of stacks, short; and home folders, gone."""

from __future__ import annotations

import pytest

from harness.analysis.paths import short_path, shorten, without_home
from harness.report.failure import innermost
from harness.report.text import stack

SHIM = 'File "/tmp/harness-x1y2_z/harness/pipeline/drafter_worker.py", line 3, in compute'
SHORT = 'File "harness/pipeline/drafter_worker.py", line 3, in compute'


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/tmp/harness-abc_1/harness/subject/entry.py", "harness/subject/entry.py"),
        ("/home/me/src/harness/locks.py", "harness/locks.py"),
        ("/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", "torch/_tensor.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
        ("/usr/lib/python3.11/threading.py", "python3.11/threading.py"),
        ("/opt/lib/python3.13t/threading.py", "python3.13t/threading.py"),
        ("/home/me/harness/mine.py", "/home/me/harness/mine.py"),
        ("relative/site-packages.py", "relative/site-packages.py"),
        ("<string>", "<string>"),
    ],
)
def test_paths_from_the_package_on(path: str, short: str) -> None:
    assert short_path(path) == short
    assert shorten(f'  File "{path}", line 3, in f') == f'  File "{short}", line 3, in f'
    assert shorten(f"  f ({path}:3)") == f"  f ({short}:3)", "as py-spy writes it"


def test_reports_and_test_failures_use_the_same() -> None:
    assert stack(f"  {SHIM}\n", 1000) == f"  {SHORT}"
    assert innermost(f"  {SHIM}\n    x\n") == [f"  {SHORT}", "    x"]


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ('File "/home/ann/train.py"', 'File "~/train.py"'),
        ("/Users/Ann.B/x and /root/y", "~/x and ~/y"),
        ("HOME=/root", "HOME=~"),
        ("/rooted/x /opt/home/x", "/rooted/x /opt/home/x"),
    ],
)
def test_home_folders_are_nobodys_business(text: str, gone: str) -> None:
    assert without_home(text) == gone
