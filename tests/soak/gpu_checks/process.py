"""The process of a check, with all that it starts: ended in good order, or at once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness.control.processes import descendants

STDOUT, STDERR = "stdout.txt", "stderr.txt"


class Running:
    """A command in a process group of its own. What it prints is added to two files of `folder`.

    Raises OSError: it cannot be started.
    """

    def __init__(self, words: Sequence[str], folder: Path, *, cwd: Path, variables: Mapping[str, str]) -> None:
        with open(folder / STDOUT, "ab") as out, open(folder / STDERR, "ab") as err:
            self._process = subprocess.Popen(
                words,
                cwd=cwd,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the command, and of its process group."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs. What it left running in its group is ended with it."""
        if self._process.returncode is None:
            # Not reaped yet, so that its number, which is the group's too, cannot belong to anybody else meanwhile.
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            self._signal(signal.SIGKILL)
        return self._process.wait()

    def interrupt(self) -> None:
        """As Ctrl-C does: a run ends its trials and stays resumable."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """At once, with what it started in groups of their own."""
        below = descendants(self.pid)
        self._signal(signal.SIGKILL)
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
