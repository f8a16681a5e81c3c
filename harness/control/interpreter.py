"""The interpreter that subjects run under: what it is, and what its doctor says.

Torch is never imported here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.control.facts import interpreter_facts
from harness.control.server_client import subject_environment
from harness.core.errors import UserError

OLDEST = (3, 11)
FACTS_TIMEOUT_S = 60.0
DOCTOR_TIMEOUT_S = 180.0


def find_python(python: str | None) -> str:
    """The absolute path of `--python`: a path, or a program on PATH; this interpreter for None.

    Links are not followed: a virtual environment's python is a link, and the link is what makes it one.
    Raises UserError when there is no such program.
    """
    if python is None:
        return sys.executable
    found = shutil.which(python)
    if found is None or Path(found).is_dir():
        raise UserError(f"--python {python}: no such program; give the path of an interpreter that has torch")
    return os.path.abspath(found)


def describe_python(python: str) -> dict[str, Any]:
    """Facts of an interpreter (`harness.control.facts`), from a small subprocess unless it is this one.

    Raises UserError when it does not run, or is older than the harness supports.
    """
    if python == sys.executable:
        return interpreter_facts()
    script = Path(__file__).with_name("facts.py")
    try:
        # From "/" and by text: neither the working folder nor ours, which may hold another torch, is to be on
        # its path.
        done = subprocess.run(
            [python, "-"],
            input=script.read_text("utf-8") + "\nmain()\n",
            capture_output=True,
            text=True,
            timeout=FACTS_TIMEOUT_S,
            check=False,
            cwd="/",
        )
        facts = json.loads(done.stdout)
        if not isinstance(facts, dict):
            raise TypeError("no object")
    except OSError as error:
        raise UserError(f"--python {python}: cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"--python {python}: no answer within {FACTS_TIMEOUT_S:.0f} s") from error
    except (ValueError, TypeError) as error:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise UserError(f"--python {python}: not a Python interpreter that works: {said[:200]}") from error
    version = tuple(int(part) for part in str(facts["python"]).split(".")[:2])
    if version < OLDEST:
        raise UserError(f"--python {python}: Python {facts['python']} is too old; the harness needs 3.11 or newer")
    return facts


def ask_doctor(python: str) -> dict[str, Any]:
    """What `python -m harness.subject --doctor` prints, under that interpreter.

    A doctor that dies or says nothing readable is a finding, not an error: its last words are in `problems`.
    """
    with tempfile.TemporaryDirectory(prefix="harness-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder, "tmp")  # a doctor that is killed takes away nothing of its own
        scratch.mkdir()
        try:
            done = subprocess.run(
                [python, "-m", "harness.subject", "--doctor"],
                capture_output=True,
                text=True,
                timeout=DOCTOR_TIMEOUT_S,
                check=False,
                env={**subject_environment(python, Path(folder)), "TMPDIR": str(scratch)},
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return _no_answer(python, f"the subject's doctor gave no answer within {DOCTOR_TIMEOUT_S:.0f} s")
    # A library may print on standard output at import; the answer is the last line.
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if done.returncode == 0 and isinstance(answer, dict):
        return answer
    how = f"exit status {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"
    said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return _no_answer(python, f"the subject's doctor ended with {how}: {said[:300]}")


def _no_answer(python: str, problem: str) -> dict[str, Any]:
    facts = describe_python(python)
    return {
        "python": facts["python"],
        "executable": python,
        "torch": facts["torch"],
        "cuda": facts["cuda"],
        "devices": [],
        "probes": {},
        "problems": [problem],
    }
