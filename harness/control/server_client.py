"""The control side's end of the start server (`harness.subject.server`): the process, its socket, its messages."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import harness


class ServerDied(Exception):
    """The start server ended; `text` is what it printed (an import error of torch, most often)."""

    def __init__(self, text: str) -> None:
        super().__init__(text.strip().splitlines()[-1] if text.strip() else "the start server ended without a word")
        self.text = text


def subject_environment(python: str, shim: Path) -> dict[str, str]:
    """Environment of server and subjects: this one, with the harness importable and threads of maths libraries bounded.

    Another interpreter may not have the harness. The folder that holds it here may be a site-packages with another
    torch in it, so that folder is not put on the path: `shim` is an empty folder of ours with a link to the package.
    """
    env = dict(os.environ)
    package = Path(harness.__file__).parent
    first = str(package.parent)
    if Path(python) != Path(sys.executable):
        (shim / "harness").symlink_to(package, target_is_directory=True)
        first = str(shim)
    elif package.parent.name in ("site-packages", "dist-packages"):
        first = ""  # installed in this very interpreter: already importable
    path = [first, *env.get("PYTHONPATH", "").split(os.pathsep)]
    env["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
    env.setdefault("OMP_NUM_THREADS", "1")  # several subjects share the cores, and one thread adds in one order
    env.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for CUDA must not spoil a fork
    env["PYTHONUNBUFFERED"] = "1"
    return env


class StartServer:
    """A running start server. All reads are for a selector: `fileno` and `receive`."""

    def __init__(self, python: str | None = None, preload: str = "auto") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="harness-")
        folder = Path(self._folder.name)
        python = python or sys.executable
        self.environment = subject_environment(python, folder)
        self._log = open(folder / "server.txt", "w+b")  # noqa: SIM115  # closed in close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", "harness.subject.server", str(theirs.fileno()), "--preload", preload],
                pass_fds=[theirs.fileno()],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for the control side alone
            )
        self._sock = ours
        self._buffer = b""

    def fileno(self) -> int:
        """For a selector."""
        return self._sock.fileno()

    def start(self, trial: str, spec: Path, how: str, env: Mapping[str, str], out: int) -> None:
        """Ask for a subject; `out` is the write end of a pipe for its output and stays the caller's to close."""
        message = {"op": "start", "trial": trial, "spec": str(spec), "how": how, "env": dict(env)}
        try:
            socket.send_fds(self._sock, [json.dumps(message).encode() + b"\n"], [out])
        except OSError as error:
            raise ServerDied(self.output()) from error

    def kill(self, trial: str) -> None:
        """Kill a subject and its process group; its end is reported as any other."""
        try:
            self._sock.sendall(json.dumps({"op": "kill", "trial": trial}).encode() + b"\n")
        except OSError as error:
            raise ServerDied(self.output()) from error

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have arrived; blocks when there is none."""
        data = self._sock.recv(65536)
        if not data:
            raise ServerDied(self.output())
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def output(self) -> str:
        """What the server printed so far."""
        self._log.flush()
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def close(self) -> None:
        """Close the socket, on which the server kills its subjects and ends."""
        self._sock.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._folder.cleanup()
