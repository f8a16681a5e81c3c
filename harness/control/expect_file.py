"""`--update-expect` on a matrix file: which file that is, and what changes when a run has ended."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path
from typing import Any

import harness
from harness.control import results
from harness.control.conclusion import RunResult, conclude
from harness.control.matrices import find_matrix
from harness.control.rundir import RunFolder
from harness.control.update_expect import check_editable, update_expectations
from harness.core.errors import MatrixError
from harness.core.matrix import Matrix, load_matrix, parse_matrix
from harness.core.tables import parse_toml

_BOM = "\ufeff"


def file_to_update(matrix: str | None, resumed: Path | None) -> Path:
    """The matrix file of a run that is about to begin, or of the one in the folder `resumed`.

    Raises MatrixError: there is none, it is no file of the user's, or cannot be written.
    """
    if matrix is None and resumed is not None:
        options = results.read_environment(resumed).get("options") or {}
        file = Path(str(options.get("matrix") or resumed / results.MATRIX))
        if not file.is_file():
            raise MatrixError(
                f"--update-expect: {file}, with which the run was begun, is not there; name the matrix file"
            )
    else:
        file = find_matrix(matrix)
    if file.resolve().is_relative_to(Path(harness.__file__).resolve().parent):
        raise MatrixError(f"--update-expect: {file} is part of the installed package; copy it, and run the copy")
    if not file.is_file() or not os.access(file, os.W_OK):
        raise MatrixError(f"--update-expect: {file} cannot be written to; copy it, and run the copy")
    return file


def check_update(file: Path, matrix: Matrix) -> None:
    """Raises MatrixError where what the run of `matrix` shows could not be written into the file, whatever that is."""
    _, text = _read(file)
    _refuse_another(file, text, matrix)
    check_editable(parse_matrix(text, file=str(file)))


def take_over(file: Path, folder: RunFolder, result: RunResult, repeats: int | None) -> tuple[RunResult, str]:
    """Write what a run has shown into its matrix file; the run judged by that, and the change as a unified diff.

    The copy in the run folder changes too, so that a resume and a report judge alike. The diff is "" when there was
    nothing to change. Raises MatrixError: the file now means other scenarios, or its tables cannot be edited.
    """
    bom, text = _read(file)
    _refuse_another(file, text, result.matrix)
    matrix = parse_matrix(text, file=str(file))
    torch = result.summary.torch or str(result.environment["torch"])
    updated = update_expectations(matrix, result.summary.scenarios, torch, repeats or matrix.repeats)
    if updated == text:
        return result, ""
    _replace(file, bom + updated)
    new = load_matrix(file)
    folder.write(results.MATRIX, new.text)
    judged = conclude(new, result.run_dir, result.environment, repeats, interrupted=result.interrupted)
    difference = difflib.unified_diff(
        text.splitlines(), updated.splitlines(), str(file), f"{file} (updated)", lineterm=""
    )
    return judged, "".join(f"{line}\n" for line in difference)


def _read(file: Path) -> tuple[str, str]:
    """(its byte order mark or "", the text behind it)."""
    try:
        raw = file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MatrixError(f"--update-expect: cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    return (_BOM, raw[1:]) if raw.startswith(_BOM) else ("", raw)


def _refuse_another(file: Path, text: str, matrix: Matrix) -> None:
    if _without_expectations(text, str(file)) != _without_expectations(matrix.text, matrix.file):
        raise MatrixError(f"--update-expect: {file} is no longer the matrix that was run; it was left alone")


def _without_expectations(text: str, at: str) -> dict[str, Any]:
    return {key: value for key, value in parse_toml(text, at).items() if key != "expect"}


def _replace(file: Path, text: str) -> None:
    target = file.resolve()  # a link stays one
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            fresh.write_bytes(text.encode("utf-8"))
            shutil.copymode(target, fresh)
            os.replace(fresh, target)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise MatrixError(f"--update-expect: cannot write {file}: {error.strerror}") from error
