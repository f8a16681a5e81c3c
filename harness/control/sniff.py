"""Which TOML files are matrix files: most are somebody else's, and are to be left alone without a word."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_LOOKS = (
    re.compile(rb"^\s*schema\s*=", re.MULTILINE),
    re.compile(rb"^\s*(\[\s*axes\s*\]|\[\[\s*include\s*\]\])", re.MULTILINE),
)


def is_matrix(path: Path, *, named: bool) -> bool:
    """Whether a TOML file is a matrix: it has `schema`, and `[axes]` or an `[[include]]`.

    One of the two is enough for a file that was `named`, and for one that is no TOML the looks of them: what is wrong
    with it is then said when it is loaded.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return named
    try:
        document = tomllib.loads(data.decode("utf-8-sig"))
        signs = ["schema" in document, "axes" in document or "include" in document]
    except (ValueError, RecursionError):
        signs = [look.search(data) is not None for look in _LOOKS]
    return any(signs) if named else all(signs)


def in_run_folder(path: Path) -> bool:
    """Whether the file is the copy of a matrix that a run folder keeps."""
    return (path.parent / "environment.json").exists()
