"""A run folder as a report needs it: everything that is whole, and a sentence about everything that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.control.request import Row
from harness.control.results import ENVIRONMENT, MATRIX, RESULTS, SCHEMA, is_finished, parse_row, read_environment
from harness.control.rundir import TRIALS, holds_trials
from harness.core.errors import RunFolderError, UserError, nearest
from harness.core.eventfile import LINES_NAME
from harness.core.matrix import Matrix, parse_matrix
from harness.report.inside import is_inside, is_trial_name
from harness.report.sound import Sounder, UnsoundError

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes. A row has at most some 200 errors with their stacks; a longer line is damage, and is not held in memory."""

LONGEST_EVENT = 64 * 1024
"""Bytes of a line of an event log, which the subject writes in chunks of a quarter of that."""

MOST_REASONS = 20
LATEST = Path("reports") / "latest"


@dataclass
class Damage:
    """Lines that were left out: reason → their numbers (the first few) and how many."""

    reasons: dict[str, tuple[list[int], int]] = field(default_factory=dict)

    def add(self, reason: str, line: int) -> None:
        """Line `line` was left out for this reason."""
        if reason not in self.reasons and len(self.reasons) >= MOST_REASONS:
            reason = "left out for other reasons"
        lines, count = self.reasons.get(reason, ([], 0))
        self.reasons[reason] = ([*lines, line] if len(lines) < 5 else lines, count + 1)

    def sentences(self) -> list[str]:
        """One a reason: `results.jsonl, line 7: not a row of results; left out.`"""
        found = []
        for reason, (lines, count) in self.reasons.items():
            listed = ", ".join(map(str, lines)) + (f" and {count - len(lines)} more" if count > len(lines) else "")
            found.append(f"{RESULTS}, line{'s' if count > 1 else ''} {listed}: {reason}; left out.")
        return found


class Source:
    """A run folder, opened for reading. `notes` says what could not be read; rows add to it as they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = Damage()
        self._notes: list[str] = []
        self._outside: dict[str, None] = {}  # files that are links out of the run folder
        self.environment = self._environment()
        self.matrix = self._matrix()

    @property
    def notes(self) -> list[str]:
        """What was left out so far, a sentence each."""
        return [*self._notes, *self._links(), *self.damage.sentences()]

    def rows(self, sounder: Sounder | None = None) -> Iterator[Row]:
        """The rows, sound, one a trial, in file order; of an interrupted trial's rows the one that counts.

        Streams, in two passes: between them only the rows' positions are held. `sounder`: for another reading of the same
        rows, which notes nothing that the first has noted.
        """
        last: dict[str, tuple[int, bool]] = {}
        first = sounder is None
        for _, offset, row in self._lines(said=first):
            done = is_finished(row)
            if row["trial"] not in last or done or not last[row["trial"]][1]:
                last[row["trial"]] = (offset, done)
        sounder = sounder or Sounder()
        for number, offset, row in self._lines(said=False):
            if last.get(row["trial"], (-1, False))[0] != offset:
                continue
            try:
                yield sounder.sound(row)
            except UnsoundError as error:
                if first:
                    self.damage.add(str(error), number)

    def trial_file(self, trial: str, name: str, longest: int, end: bool = False) -> str:
        """The first (or last) `longest` bytes of a file of a trial as text; "" when there is none."""
        try:
            path = self.trial_path(trial, name)
            if path is None:
                return ""
            with open(path, "rb") as stream:
                size = path.stat().st_size
                if end and size > longest:
                    stream.seek(size - longest)
                text = stream.read(longest).decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            self._notes.append(f"{TRIALS}/…/{name}: {getattr(error, 'strerror', None) or error}; left out.")
            return ""
        cut = f"[… {size - longest:,} bytes left out …]" if size > longest else ""
        return "\n".join(filter(None, [cut, text] if end else [text, cut]))

    def trial_path(self, trial: str, name: str) -> Path | None:
        """A file of a trial; None without one, and, with a note, where a link leads out of the run folder.

        Raises OSError, ValueError: it cannot be looked at.
        """
        if not is_trial_name(trial):
            return None
        path = self.path / TRIALS / trial / name
        if not path.is_file():
            return None
        if is_inside(path, self.path):
            return path
        self._outside[f"{TRIALS}/{trial}/{name}"] = None
        return None

    def events(self, trial: str) -> Iterator[dict[str, Any]]:
        """The events of a trial, as far as its log is whole; what is damaged is left out, and said."""
        lost = 0
        try:
            path = self.trial_path(trial, LINES_NAME)
            if path is None:
                return
            with open(path, "rb") as file:
                while line := file.readline(LONGEST_EVENT):
                    event = _event(line)
                    if event is not None:
                        yield event
                    elif line.endswith(b"\n") or len(line) == LONGEST_EVENT:
                        lost += 1  # a last line that was cut is how a subject that was killed ends
        except (OSError, ValueError) as error:
            self._notes.append(f"{TRIALS}/…/{LINES_NAME}: {getattr(error, 'strerror', None) or error}; left out.")
        if lost:
            said = "line that is" if lost == 1 else "lines that are"
            self._notes.append(f"{TRIALS}/{trial}/{LINES_NAME}: {lost:,} {said} no event; left out.")

    def _links(self) -> list[str]:
        """The sentence about files that lie elsewhere, if there are any."""
        if not self._outside:
            return []
        first = list(self._outside)[:5]
        more = f" and {len(self._outside) - len(first)} more" if len(self._outside) > len(first) else ""
        return [f"{', '.join(first)}{more}: links that lead out of the run folder; left out."]

    def _lines(self, *, said: bool) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """(line number, offset, row); with `said`, what is no row is noted."""
        file = self.path / RESULTS
        try:
            stream = open(file, "rb")  # noqa: SIM115 - closed by the with below; the open alone may fail quietly
        except FileNotFoundError:
            if said:
                self._notes.append(f"{RESULTS} is missing: no trial has ended, or the folder is not whole.")
            return
        except OSError as error:
            raise RunFolderError(f"cannot read {file}: {error.strerror}") from error
        with stream:
            offset = number = 0
            while line := stream.readline(LONGEST_LINE):
                number += 1
                start, offset = offset, offset + len(line)
                whole = line.endswith(b"\n")
                while not whole and len(line) == LONGEST_LINE and (rest := stream.readline(LONGEST_LINE)):
                    offset, whole = offset + len(rest), rest.endswith(b"\n")
                row = _row(line) if offset - start == len(line) else None
                if row is not None:
                    yield number, start, row
                elif said and line.strip():
                    self.damage.add("not a row of results" if whole else "cut in its middle", number)

    def _environment(self) -> dict[str, Any]:
        try:
            found = read_environment(self.path)
        except RecursionError:
            self._notes.append(f"{ENVIRONMENT} is nested without end; its facts are missing here.")
            return {}
        except RunFolderError as error:
            if _is_newer(self.path / ENVIRONMENT):
                raise
            self._notes.append(f"{error}; its facts are missing here.")
            return {}
        if not found:
            self._notes.append(f"{ENVIRONMENT} is missing: where this ran is not known.")
        return found

    def _matrix(self) -> Matrix | None:
        try:
            return parse_matrix((self.path / MATRIX).read_text("utf-8-sig"), file=MATRIX)
        except FileNotFoundError:
            self._notes.append(f"{MATRIX} is missing: nothing is held against expectations, and nothing can be rerun.")
        except (OSError, UnicodeDecodeError) as error:
            self._notes.append(f"{MATRIX} cannot be read ({error}): nothing is held against expectations.")
        except UserError as error:
            self._notes.append(f"{error}. Nothing is held against expectations.")
        return None


def open_source(path: Path) -> Source:
    """A run folder, for reading. Raises RunFolderError: there is none, or a newer harness wrote it."""
    try:
        if not path.exists():
            there = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
            raise RunFolderError(f"{path}: no such run folder{nearest(path.name, there)}")
        if not path.is_dir():
            raise RunFolderError(f"{path} is a file; give the run folder that holds {RESULTS}")
        if not holds_trials(path):
            raise RunFolderError(f"{path} is not a run folder: it has neither {RESULTS} nor {MATRIX}")
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from error
    return Source(path)


def find_run(path: Path | None) -> Path:
    """The folder that is meant: the newest run for None. Raises RunFolderError when there is none."""
    if path is not None:
        return path
    if not LATEST.exists():
        raise RunFolderError(f"there is no {LATEST}: name a run folder, or make one with harness run")
    return LATEST.resolve()


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        return parse_row(line)
    except RecursionError:  # brackets without end
        return None


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_newer(file: Path) -> bool:
    try:
        schema = json.loads(file.read_text("utf-8"))["schema"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(schema, int) and schema > SCHEMA
