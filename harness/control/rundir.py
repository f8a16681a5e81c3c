"""The run folder: one run's matrix, environment, rows and trial folders.

Rows are appended one line at a time and fsynced, so a run that is killed at any moment has lost no finished
trial. A lock (`flock`) keeps a second run out; the system frees it when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.control.request import Row
from harness.control.results import (
    ENVIRONMENT,
    MATRIX,
    RESULTS,
    SCHEMA,
    is_finished,
    parse_row,
    read_environment,
    read_rows,
    unended_line,
)
from harness.core.errors import RunFolderError

CUT = "results.cut"
TRIALS = "trials"
LOCK = ".lock"
_RUN_FILES = (MATRIX, ENVIRONMENT, RESULTS)
_OF_A_PLAN = re.compile(r"\d{3,}-(plan|counterfactual)")


def as_typed(path: Path) -> str:
    """As a user at this prompt would write it."""
    here, path = Path.cwd(), path.resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def default_folder(matrix_name: str, reports: Path = Path("reports")) -> Path:
    """A new name under `reports`: the matrix and the UTC time, with a number if that exists already."""
    base = f"{matrix_name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    candidate, number = reports / base, 2
    while candidate.exists():
        candidate, number = reports / f"{base}-{number}", number + 1
    return candidate


def is_run_folder(path: Path) -> bool:
    """Whether a run was begun here: by `harness run`, a bisection or pytest."""
    return not not_a_run(path)


def not_a_run(path: Path) -> str:
    """What stands here instead of a run, as the end of a sentence about `path`; "" where it is a run's folder.

    Raises RunFolderError: it cannot be looked at.
    """
    if any(os.path.exists(path / name) for name in _RUN_FILES):  # false, too, of a name that no folder can have
        return "is the folder of a watch (harness watch), not of a run" if _is_of_a_watch(path) else ""
    if not os.path.isdir(path):
        return "is no run folder"
    if not os.path.isdir(path / TRIALS):
        return "holds no run"
    try:
        names = os.listdir(path / TRIALS)
    except OSError as error:
        raise RunFolderError(f"cannot read {path / TRIALS}: {error.strerror}") from error
    if any(map(_OF_A_PLAN.fullmatch, names)):
        return "holds the trials of a plan (harness reproduce), not of a run"
    return f"holds {TRIALS}/ and nothing that says what was run: no {MATRIX}, {ENVIRONMENT} or {RESULTS}"


def holds_trials(path: Path) -> bool:
    """Whether trials are here or were to be, a run's, a watch's or a plan's: others would get mixed up with them."""
    return any(os.path.exists(path / name) for name in (*_RUN_FILES, TRIALS))


def _is_of_a_watch(path: Path) -> bool:
    try:
        return read_environment(path).get("kind") == "watch"
    except RunFolderError:  # whoever reads it says what is wrong with it
        return False


class RunFolder:
    """A run folder that this process holds locked. Use `open_run`; leaving the context frees it."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self.finished: set[str] = set()
        self._lock_fd = lock_fd
        self._results_fd = -1
        self._mutex = threading.Lock()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the folder for others."""
        with self._mutex:
            for fd in (self._results_fd, self._lock_fd):
                if fd >= 0:
                    os.close(fd)
            self._results_fd = self._lock_fd = -1

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder as a whole or not at all."""
        try:
            _write_atomically(self.path / name, text)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def open_results(self, note: Callable[[str], None]) -> None:
        """Open results.jsonl for appending and learn which trials are finished.

        A last line that was cut is moved to `results.cut`, and `note` is told. Raises RunFolderError for any
        other line that is no row.
        """
        path = self.path / RESULTS
        try:
            self._results_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            self._keep_cut_line_aside(path, note)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self.finished = {row["trial"] for row in read_rows(self.path) if is_finished(row)}

    def _keep_cut_line_aside(self, path: Path, note: Callable[[str], None]) -> None:
        end, cut = unended_line(path)
        if not cut:
            return
        if parse_row(cut) is not None:  # only the line feed is missing: the row is whole
            os.write(self._results_fd, b"\n")
            return
        with open(self.path / CUT, "ab") as aside:
            aside.write(cut + b"\n")
            aside.flush()
            os.fsync(aside.fileno())
        os.ftruncate(self._results_fd, end)
        os.fsync(self._results_fd)
        note(f"{path} ended in a cut line ({len(cut)} bytes): kept aside in {CUT}; its trial runs again")

    def append(self, row: Row) -> None:
        """Append one row and have it on disk before returning. Raises RunFolderError when the disk refuses.

        A row `interrupted` for a trial that has finished is dropped: the interrupt came between its end and
        its being known. Any other second row of a finished trial raises ValueError, for it would count twice.
        """
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"
        with self._mutex:
            trial = row["trial"]
            if trial in self.finished:
                if not is_finished(row):
                    return
                raise ValueError(f"trial {trial} has a row already")
            size = os.fstat(self._results_fd).st_size
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(self._results_fd, rest) :]
                os.fsync(self._results_fd)
            except OSError as error:
                os.ftruncate(self._results_fd, size)  # no cut line for the next run to find
                raise _unwritable(self.path, error) from error
            if is_finished(row):
                self.finished.add(trial)

    def trial_folder(self, trial_id: str) -> Path:
        """The folder of one trial; it need not exist.

        Raises ValueError for an id that would leave the run folder.
        """
        if not trial_id or trial_id in (".", "..") or "/" in trial_id or "\0" in trial_id:
            raise ValueError(f"unsafe trial id {trial_id!r}")
        return self.path / TRIALS / trial_id

    def fresh_trial_folder(self, trial_id: str) -> Path:
        """Make the trial's folder, empty: what an unfinished attempt left must not be read as this one's."""
        folder = self.trial_folder(trial_id)
        try:
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return folder


def open_run(path: Path, *, resume: bool) -> RunFolder:
    """Make or reopen a run folder and lock it.

    Raises RunFolderError: it cannot be written, another run holds it, it holds a run or other trials and `resume` is
    False, or a newer harness wrote it.
    """
    if holds_trials(path) and not resume:
        if other := not_a_run(path):
            raise RunFolderError(f"{path} {other}; choose another folder with --out")
        raise RunFolderError(
            f"{path} already holds a run: continue it with --resume, or choose another folder with --out"
        )
    if resume:
        read_environment(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        by = f" (process {holder})" if holder else ""
        raise RunFolderError(f"{path} is in use by another run{by}: wait for it, or choose another --out") from None
    except OSError as error:
        os.close(fd)
        raise RunFolderError(f"cannot lock {path}: {error.strerror}; choose another folder with --out") from error
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    except OSError as error:
        os.close(fd)
        raise _unwritable(path, error) from error
    return RunFolder(path, fd)


def point_latest(folder: Path, reports: Path = Path("reports")) -> str:
    """Let `reports/latest` point at a folder inside `reports`; returns what stood in the way, or ''."""
    if folder.resolve().parent != reports.resolve():
        return ""
    link, fresh = reports / "latest", reports / f".latest-{os.getpid()}"
    if link.exists() and not link.is_symlink():
        return f"{link} is no link, so it was left alone"
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder.resolve().name)
        os.replace(fresh, link)
    except OSError as error:
        return f"could not point {link} at the run: {error.strerror}"
    return ""


def _write_atomically(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(fresh, "w", encoding="utf-8", errors="backslashreplace", newline="") as stream:  # names that are no text
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(fresh, path)


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"cannot write to run folder {path}: {error.strerror}; choose another with --out")


def dump_environment(environment: Mapping[str, Any]) -> str:
    """environment.json's text, with the schema first."""
    return json.dumps({**environment, "schema": SCHEMA}, indent=2, ensure_ascii=False) + "\n"
