"""A run folder that several processes of one test session fill: rows and references, each written by one at a time.

The process that begins the session holds the folder's lock, as `harness run` would; the others only append.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.control.references import FOLDER as REFERENCES
from harness.control.references import PREFIX, References
from harness.control.request import Row, TrialRequest
from harness.control.results import RESULTS, is_finished, read_rows
from harness.control.rundir import RunFolder, open_run
from harness.core.errors import RunFolderError


class SharedRunFolder(RunFolder):
    """Appends a row while it holds a lock of its own on the file, so that rows of several processes never mix."""

    @property
    def _guard(self) -> Path:
        return self.path / f".{RESULTS}.lock"

    def check(self) -> None:
        """Raises RunFolderError: the results file that was opened is no longer the one there, so rows would go nowhere."""
        try:
            there = os.path.samestat(os.stat(self.path / RESULTS), os.fstat(self._results_fd))
        except (FileNotFoundError, NotADirectoryError):
            there = False
        if not there:
            raise RunFolderError(f"{self.path} was removed or replaced while its tests ran: the trials in it are lost")

    def open_results(self, note: Callable[[str], None]) -> None:
        """As a run folder of one process does, while nobody else writes."""
        with locked(self._guard):
            super().open_results(note)

    def append(self, row: Row) -> None:
        """As a run folder of one process does, while nobody else writes."""
        with locked(self._guard):
            super().append(row)

    def learn(self, trial_ids: Iterable[str]) -> None:
        """Learn which of these trials another process has finished, if there is a sign that one began them."""
        if any(name not in self.finished and self.trial_folder(name).exists() for name in trial_ids):
            self.finished |= {row["trial"] for row in read_rows(self.path) if is_finished(row)}


class SharedReferences(References):
    """References of which each is made by one process, which holds a lock meanwhile; the others take what it has made."""

    def __init__(self, run_dir: Path, dtype: str) -> None:
        super().__init__(run_dir, dtype)
        self._locks = run_dir / REFERENCES
        self._held: dict[str, ExitStack] = {}

    def ended(self, row: Row) -> None:
        """As where one process makes them all; the others may take it now."""
        super().ended(row)
        self._held.pop(row["trial"].removeprefix(PREFIX), ExitStack()).close()

    def abandon(self, request: TrialRequest) -> None:
        """As where one process makes them all; another whose trials need it may make it."""
        super().abandon(request)
        self._held.pop(self.key_of_reference(request), ExitStack()).close()

    def release(self) -> None:
        """Let others make what was claimed and has not ended."""
        for lock in self._held.values():
            lock.close()
        self._held.clear()

    def _own(self, key: str, wait: bool) -> bool:
        self._locks.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._locks / f".{key}.lock", wait=wait))
            except BlockingIOError:
                return False
            if self._load(key):  # made since it was looked for
                return False
            self._held[key] = stack.pop_all()
        return True


def begin_shared(path: Path) -> SharedRunFolder:
    """Make a new run folder and hold its lock. Raises RunFolderError as `open_run` does."""
    owned = open_run(path, resume=False)
    return SharedRunFolder(path, owned._lock_fd)  # which frees it when it is closed


def join_shared(path: Path) -> SharedRunFolder:
    """Open a run folder that another process of this session holds.

    Raises RunFolderError when there is none.
    """
    if not (path / RESULTS).exists():
        raise RunFolderError(f"{path} is no run folder that this session has begun")
    folder = SharedRunFolder(path, -1)
    folder.open_results(lambda note: None)
    return folder


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file, made if need be. Waits for it; a signal whose handler raises ends the wait.

    Without `wait`, raises BlockingIOError where another holds it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(fd)
