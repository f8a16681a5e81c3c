"""Reading a run folder: its environment and its rows. Nothing here writes, or needs the folder's lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.control.request import Row
from harness.core.errors import RunFolderError
from harness.core.jsontext import parse_json
from harness.core.rowshape import fault

SCHEMA = 1
MATRIX = "matrix.toml"
ENVIRONMENT = "environment.json"
RESULTS = "results.jsonl"
BISECTION = "bisect.json"
"""In the folder of a bisection: what was asked, and in the end the answer."""
_COUNTED = ("scenario_id", "scenario", "outcomes")


def read_environment(path: Path) -> dict[str, Any]:
    """environment.json of a run folder; {} when there is none.

    Raises RunFolderError: unreadable, or a newer schema.
    """
    file = path / ENVIRONMENT
    try:
        value = parse_json(file.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise RunFolderError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise RunFolderError(f"{file} is not JSON ({error}): not a run folder of this harness") from error
    if not isinstance(value, dict) or not isinstance(value.get("schema"), int):
        raise RunFolderError(f'{file} has no "schema" number: not a run folder of this harness')
    if value["schema"] > SCHEMA:
        raise RunFolderError(
            f"{path} was written by a newer harness (schema {value['schema']}; this one knows {SCHEMA}): "
            "upgrade dflash-harness to read it"
        )
    return value


def bisected(path: Path) -> str:
    """What a bisection in this folder looks for: locks, regions, torch; "" where there is none."""
    file = path / BISECTION
    if not file.exists():
        return ""
    try:
        document = parse_json(file.read_text("utf-8"))
    except (OSError, ValueError):
        document = None
    what = document.get("what") if isinstance(document, dict) else None
    return what if what in ("locks", "regions", "torch") else "locks"


def is_finished(row: Row) -> bool:
    """Whether the trial ran to its end, whatever that was: a resume does not run it again."""
    return bool(row.get("outcome") != "interrupted")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a run folder, one a trial, in file order; of an interrupted trial's rows the one that
    counts.

    Streams: only the positions of the rows are held in memory. A cut last line is passed over. Raises
    RunFolderError for a line that is no row, and for a folder of a newer harness.
    """
    read_environment(path)
    file = path / RESULTS
    last: dict[str, tuple[int, bool]] = {}
    for offset, row in _lines(file):
        done = is_finished(row)
        if row["trial"] not in last or done or not last[row["trial"]][1]:
            last[row["trial"]] = (offset, done)
    for offset, row in _lines(file):
        if last.get(row["trial"], (-1, False))[0] == offset:
            yield row


def counted_rows(path: Path) -> Iterator[dict[str, Any]]:
    """`read_rows`, each of a form that can be counted. Raises RunFolderError for one that is not, besides."""
    for row in read_rows(path):
        if wrong := fault(row, _COUNTED, nulls=True):
            raise RunFolderError(f"{path / RESULTS}: trial {row['trial']}: {wrong}; move its line out of the file")
        yield row


def parse_row(line: bytes) -> dict[str, Any] | None:
    """The row of a line of results.jsonl; None when it is none."""
    try:
        value = parse_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("trial"), str) else None


def unended_line(path: Path) -> tuple[int, bytes]:
    """(where the unended last line begins, its bytes); the bytes are empty when the file ends well."""
    with open(path, "rb") as stream:
        end = stream.seek(0, os.SEEK_END)
        tail, start = b"", end
        while start > 0 and b"\n" not in tail:
            step = min(65536, start)
            start -= step
            stream.seek(start)
            tail = stream.read(step) + tail
    cut = tail[tail.rfind(b"\n") + 1 :]
    return end - len(cut), cut


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        stream = open(file, "rb")  # noqa: SIM115 - closed by the with below; the open alone may fail quietly
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunFolderError(f"cannot read {file}: {error.strerror}") from error
    with stream:
        offset = 0
        for number, line in enumerate(stream, 1):
            row = parse_row(line)
            if row is not None:
                yield offset, row
            elif line.endswith(b"\n") and line.strip():
                raise RunFolderError(f"{file}, line {number}: not a row of results; move the line out of the file")
            offset += len(line)
