"""Runs one program in this terminal, and passes on what a wrapper could swallow: signals, exit code, death by signal.

Standard streams, working folder and process group are inherited, so that the program keeps its terminal.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from harness.core.errors import UserError
from harness.core.telling import flush_streams

from .processes import descendants

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_A_PROCESS = 0  # SI_USER: kill(2); a terminal's Ctrl-C comes from the kernel, and to the whole group
_WATCHED = {*PASSED_ON, signal.SIGCHLD}


class Program:
    """The program, running. Signals to this process are blocked from here on: `wait` passes them on."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)

        def as_before() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

        try:
            self._process = subprocess.Popen(
                list(words),
                env=dict(environment),
                preexec_fn=as_before,  # nothing else runs in this process yet
                close_fds=False,
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise UserError(f"{words[0]}: cannot be executed: {error.strerror}") from error
        self.pid = self._process.pid
        self.began = time.monotonic()
        self.lived_s = 0.0
        self.stopped_by_us = False

    def wait(self, every_s: float, meanwhile: Callable[[], None]) -> int:
        """The wait status (as of `os.wait`), once the program has ended; `meanwhile` is called every so often."""
        due = time.monotonic() + every_s
        while True:
            found = signal.sigtimedwait(_WATCHED, max(0.0, due - time.monotonic()))
            if found is not None and found.si_signo in PASSED_ON:
                self._pass_on(found.si_signo, found.si_code)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self.lived_s = time.monotonic() - self.began
                return status
            if time.monotonic() >= due:
                meanwhile()
                due = time.monotonic() + every_s

    def _pass_on(self, number: int, code: int) -> None:
        if code == _FROM_A_PROCESS or number not in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the program and what it started: its descendants as they are now."""
        self.stopped_by_us = True
        for pid in [self.pid, *descendants(self.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def end_like(status: int, *, killed_by_us: bool = False) -> NoReturn:
    """End this process as the program ended: with its exit code, or by its signal, unless that was ours."""
    flush_streams()
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and killed_by_us:
        code = 128 - code
    elif code < 0:
        number = -code
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # the program has left its core already
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        time.sleep(1.0)  # a signal may take a moment
        code = 128 + number
    os._exit(code)
