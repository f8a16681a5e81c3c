"""Errors that are the user's to mend: one line each, saying where, what, and what to do instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input. The message is one line; the command line prints it after ``error:`` and exits with 2."""

    def __init__(self, message: str) -> None:
        # A value quoted from a file may hold a line break; the promise is one line.
        super().__init__(" ".join(message.splitlines()))


class MatrixError(UserError):
    """A matrix file, or a value of one of its axes, is wrong. Mend the file at the key that is named."""


class WhereError(UserError):
    """A ``where`` or ``--only`` expression cannot be read. Mend it at the position that is named."""


class SettingError(UserError):
    """A key of the ``[pipeline]`` table is unknown, or its value cannot be used."""


class RunFolderError(UserError):
    """A run folder, or a file in it, is missing or damaged, or belongs to another matrix."""


def show(value: object) -> str:
    """A value as the author of a TOML file wrote it, with its kind where that is likely to be wrong."""
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean)"
    if isinstance(value, str):
        return f'"{value}"' if value.isprintable() else ascii(value)
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    return str(value)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """``' (did you mean "x"?)'`` for the candidate closest to ``word``, or ``''`` if none is close."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return f' (did you mean "{by_lower[close[0]]}"?)' if close else ""
