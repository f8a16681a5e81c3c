"""Processes of a test that carry a tag in their environment, by which what is left of them is found afterwards."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

TAG = "HARNESS_TEST_TAG"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")


class Tagged:
    """A process and all that it starts; output and errors are one text."""

    def __init__(self, command: Sequence[str], cwd: Path) -> None:
        self.tag = uuid.uuid4().hex
        path = os.pathsep.join([str(HERE), str(ROOT)])
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path, TAG: self.tag, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, timeout: float = 120.0) -> tuple[int, str]:
        """Exit status and output, once it has ended."""
        said, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode, said

    def left(self, seconds: float = 20.0) -> list[str]:
        """Command lines of its processes that are still there after so many seconds; [] as soon as none is."""
        deadline = time.monotonic() + seconds
        while found := list(self._processes()):
            if time.monotonic() > deadline:
                return found
            time.sleep(0.02)
        return []

    def _processes(self) -> Iterator[str]:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"{TAG}={self.tag}".encode() in (folder / "environ").read_bytes():
                    yield (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has gone, or is not ours
