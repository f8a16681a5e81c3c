"""Processes below another; and what a process asks of the kernel for itself."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from harness.control.processes import below, descendants
from harness.subject.prctl import ANYBODY, die_with_parent, let_read

CHILD = """
import subprocess, sys
own = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(own.pid, flush=True)
input()
own.stdin.close()
own.wait()
"""


def test_those_below_a_process_come_after_their_parents() -> None:
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        assert descendants(process.pid) == [grandchild]
        found = descendants(os.getpid())
        assert found.index(process.pid) < found.index(grandchild)
        assert [(one.pid, one.parent) for one in below(process.pid)] == [
            (process.pid, os.getpid()),
            (grandchild, process.pid),
        ]
    finally:
        process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert below(process.pid) == []


def test_what_is_asked_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Library:
        def __init__(self, _name: None) -> None:
            return

        def prctl(self, option: int, argument: Any, *_: int) -> None:
            asked.append((option, argument.value))

    monkeypatch.setattr(ctypes, "CDLL", Library)
    let_read(7)
    let_read(ANYBODY)
    die_with_parent()
    ptracer = int.from_bytes(b"Yama", "big")  # linux/prctl.h: PR_SET_PTRACER
    assert asked == [(ptracer, 7), (ptracer, 2**64 - 1), (1, signal.SIGKILL)]
