"""Typed reading of TOML tables. Each complaint says where: ``at`` is e.g. ``quick.toml: [defaults]``."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from harness.core.errors import MatrixError, nearest, show

Table = Mapping[str, Any]


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """The document.

    Raises:
        MatrixError: it is no TOML; the message holds the parser's complaint with its line and column. Or an integer
            in it has more than TOML's 64 bits.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        complaint = str(error)
        # The parser gives no number for what is missing at the very end.
        last = text.count("\n") + (not text.endswith("\n"))
        complaint = complaint.replace("at end of document", f"at line {last}, the end of the file")
        found = re.search(r"at (line \d+)", complaint)
        line = f"{found[1]}: " if found else ""
        raise MatrixError(f"{file}: {line}not valid TOML: {complaint}") from None
    except RecursionError:
        raise MatrixError(f"{file}: not valid TOML: nested too deep") from None
    except ValueError:  # more digits than Python reads
        raise MatrixError(f"{file}: not valid TOML: an integer has more than 64 bits") from None
    if key := _key_of_long(document):
        raise MatrixError(f'{file}: key "{key}": an integer has more than 64 bits')
    return document


def _key_of_long(document: Table) -> str:
    """The key of an integer that is longer than TOML has them, which could not even be quoted; "" when there is none."""
    left = list(document.items())
    while left:
        key, value = left.pop()
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            return key
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += [(key, item) for item in value]
    return ""


def check_keys(table: Table, known: Iterable[str], at: str, what: str = "key") -> None:
    """Raises ``MatrixError`` at a key that is not known, with the nearest."""
    known = tuple(known)
    for key in table:
        if key not in known:
            hint = nearest(key, known) or "; known are " + ", ".join(known)
            raise MatrixError(f"{at}: no {what} is called {show(key)}{hint}")


def table_at(document: Table, key: str, file: str) -> dict[str, Any]:
    """The table ``[key]``; empty where it is missing. Raises ``MatrixError`` when it is something else."""
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise MatrixError(f'{file}: key "{key}": expected a table, [{key}]; this is {kind(value)}')
    return value


def tables_at(document: Table, key: str, file: str) -> list[dict[str, Any]]:
    """The tables ``[[key]]``; empty where there is none. Raises ``MatrixError`` when it is something else."""
    value = document.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise MatrixError(f'{file}: key "{key}": expected a list of tables, written [[{key}]]; this is {kind(value)}')
    return value


def string_at(table: Table, key: str, at: str, default: str | None = None) -> str:
    """A string; ``default`` where it is missing. ``MatrixError`` when there is none, or it is no string."""
    if key not in table:
        if default is None:
            raise MatrixError(f'{at}: key "{key}" is missing')
        return default
    value = table[key]
    if not isinstance(value, str):
        raise MatrixError(f'{at} key "{key}": {show(value)} is not a string')
    return value


def strings_at(table: Table, key: str, at: str) -> tuple[str, ...]:
    """A list of different strings, not empty; ``()`` where it is missing. Else ``MatrixError``."""
    if key not in table:
        return ()
    value = table[key]
    if not isinstance(value, list):
        raise MatrixError(f'{at} key "{key}": {show(value)} is not a list; put it in brackets')
    for item in value:
        if not isinstance(item, str):
            raise MatrixError(f'{at} key "{key}": {show(item)} is not a string')
        if value.count(item) > 1:
            raise MatrixError(f'{at} key "{key}": {show(item)} is listed twice; name it once')
    if not value:
        raise MatrixError(f'{at} key "{key}": the list is empty; name something or leave the key out')
    return tuple(value)


def count_at(table: Table, key: str, at: str, default: int) -> int:
    """An integer of at least 1; ``default`` where it is missing. A boolean is no integer."""
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MatrixError(f'{at} key "{key}": {show(value)} is not an integer')
    if value < 1:
        raise MatrixError(f'{at} key "{key}": {value} is too small; the least is 1')
    return value


def seconds_at(table: Table, key: str, at: str) -> float | None:
    """A number of seconds above 0; None where it is missing."""
    if key not in table:
        return None
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MatrixError(f'{at} key "{key}": {show(value)} is not a number of seconds')
    if not (math.isfinite(value) and value > 0):
        raise MatrixError(f'{at} key "{key}": {show(value)} seconds; it must be finite and above 0')
    return float(value)


def kind(value: object) -> str:
    """What a TOML value is, in words."""
    if isinstance(value, dict):
        return "a single table"
    if isinstance(value, list):
        return "a list"
    return show(value)
