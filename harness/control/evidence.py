"""Evidence of a subject that hangs, taken from outside before it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

STACKS = "stacks.txt"
PYSPY_SECONDS = 15


def wait_for_stacks(pid: int, folder: Path, seconds: float = 1.0) -> None:
    """Ask faulthandler in the subject for all Python stacks (SIGUSR1) and wait until the file has grown."""
    path = folder / STACKS
    before = path.stat().st_size if path.exists() else 0
    try:
        os.kill(pid, signal.SIGUSR1)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.stat().st_size > before:
            return
        time.sleep(0.02)


def pyspy() -> str | None:
    """The py-spy program: beside this interpreter, or on the path."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def pyspy_dump(pid: int, folder: Path) -> None:
    """Append py-spy's view of all threads to `stacks.txt`, with native frames where possible; or why there is none."""
    program = pyspy()
    if program is None:
        _append(folder, "py-spy: not installed\n")
        return
    for flags in (["--native"], []):
        try:
            done = subprocess.run(
                [program, "dump", "--pid", str(pid), *flags],
                capture_output=True,
                text=True,
                timeout=PYSPY_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            _append(folder, f"py-spy {' '.join(flags)}: no answer in {PYSPY_SECONDS} s\n")
            continue
        title = f"\n=== py-spy dump {' '.join(flags)} (exit {done.returncode})\n"
        _append(folder, title + done.stdout + done.stderr)
        if done.returncode == 0:
            return


def why_stuck(pid: int) -> tuple[str, bool]:
    """Why a process that its own watchdog tells nothing of does not go on: in words, or what kept us from knowing; and
    whether its threads wait for one another in a circle.
    """
    from harness.control.dump import dump_found  # with the catalogue, which only a hang needs
    from harness.control.processes import look

    process = look(pid)
    if process is None:
        return "", False
    found = dump_found(process, native=True, timeout_s=PYSPY_SECONDS, hung=True)
    if found.failed:
        return f"no stacks from outside: {found.note}", False
    return found.diagnosis.in_words(), any(finding.kind == "cycle" for finding in found.diagnosis.findings)


def _append(folder: Path, text: str) -> None:
    with open(folder / STACKS, "a", encoding="utf-8") as file:
        file.write(text)
