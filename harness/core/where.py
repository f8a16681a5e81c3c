"""The language of ``where`` and ``--only``: which scenarios are meant.

::

    any   = all ("or" all)*
    all   = unary ("and" unary)*
    unary = "not" unary | "(" any ")" | axis "=" glob

A glob is as in ``fnmatch`` and matches the whole value; one with blanks or parentheses stands in double
quotes. A glob without wildcards must be a value of its axis: a typing error shall not be a filter that never
matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from harness.core.axes import BY_NAME, coerce, no_axis
from harness.core.errors import MatrixError, WhereError
from harness.core.scenario import Scenario

MAX_DEPTH = 50
"""Deepest nesting of ``not`` and parentheses; a deeper expression is refused before it exhausts the stack."""

_WILD = re.compile(r"[*?\[]")
_BARE = re.compile(r'[^\s()"=][^\s()"]*')  # a leading "=" would read as "=="
_BLANK = re.compile(r"\s*")
_KEYWORD = re.compile(r"(and|or|not)(?![\w-]|\s*=)")
_TERM = re.compile(r'([\w-]+)\s*(!=|==|=)\s*("([^"]*)"|[^\s()"]+)')
_WORD = re.compile(r"[^\s()]+")


@dataclass(frozen=True)
class Match:
    """``axis=glob``."""

    axis: str
    glob: str

    def matches(self, scenario: Scenario) -> bool:
        """Whether the glob matches the whole value of the axis; case counts."""
        return fnmatchcase(str(scenario.value(self.axis)), self.glob)

    def __str__(self) -> str:
        return f"{self.axis}={self.glob}" if _BARE.fullmatch(self.glob) else f'{self.axis}="{self.glob}"'


@dataclass(frozen=True)
class Not:
    """The scenarios that ``part`` does not mean."""

    part: Node

    def matches(self, scenario: Scenario) -> bool:
        """Whether ``part`` does not match."""
        return not self.part.matches(scenario)

    def __str__(self) -> str:
        return f"not ({self.part})" if isinstance(self.part, And | Or) else f"not {self.part}"


@dataclass(frozen=True)
class And:
    """The scenarios that all of two or more parts mean."""

    parts: tuple[Node, ...]

    def matches(self, scenario: Scenario) -> bool:
        """Whether every part matches."""
        return all(part.matches(scenario) for part in self.parts)

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, And | Or) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Or:
    """The scenarios that any of two or more parts means."""

    parts: tuple[Node, ...]

    def matches(self, scenario: Scenario) -> bool:
        """Whether some part matches."""
        return any(part.matches(scenario) for part in self.parts)

    def __str__(self) -> str:
        return " or ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts)


Node = Match | Not | And | Or


@dataclass(frozen=True)
class Where:
    """A parsed expression. ``str`` of it is canonical and reads back as an equal ``node``."""

    text: str  # as written
    node: Node

    def matches(self, scenario: Scenario) -> bool:
        """Whether the scenario is meant."""
        return self.node.matches(scenario)

    def __str__(self) -> str:
        return str(self.node)


def parse_where(text: str) -> Where:
    """Read an expression.

    Raises:
        WhereError: it cannot be read, or names an unknown axis or value; the message says at which character,
            counted from 1, and what is nearest, or which axes there are.
    """
    reader = _Reader(text)
    node = reader.any(0)
    if not reader.at_end():
        raise reader.error('expected "and", "or" or the end')
    return Where(text, node)


class _Reader:
    """Recursive descent over the text; ``at`` is the offset of what is read next."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._skip_blank()

    def at_end(self) -> bool:
        return self.at == len(self.text)

    def error(self, message: str, at: int | None = None) -> WhereError:
        position = self.at if at is None else at
        found = _WORD.match(self.text, position)
        seen = f' at "{found[0]}"' if found else ""
        if position >= len(self.text):
            seen = " (the end)"
        return WhereError(f"in '{self.text}', position {position + 1}{seen}: {message}")

    def any(self, depth: int) -> Node:
        parts = [self._all(depth)]
        while self._keyword("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self, depth: int) -> Node:
        parts = [self._unary(depth)]
        while self._keyword("and"):
            parts.append(self._unary(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _unary(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} deep; simplify it")
        if self._keyword("not"):
            return Not(self._unary(depth + 1))
        if self._symbol("("):
            opened = self.at - 1
            node = self.any(depth + 1)
            if not self._symbol(")"):
                raise self.error(f'expected ")" for the "(" at position {opened + 1}')
            return node
        return self._term()

    def _term(self) -> Node:
        start = self.at
        found = None if _KEYWORD.match(self.text, start) else _TERM.match(self.text, start)
        if not found:
            raise self.error("expected axis=value, e.g. lock=none")
        axis, sign, raw, quoted = found.groups()
        if sign != "=":
            better = f"{axis}={raw}" if sign == "==" else f"not {axis}={raw}"
            raise self.error(f'there is no "{sign}" here; write {better}', found.start(2))
        if axis not in BY_NAME:
            raise self.error(no_axis(axis), start)
        glob = self._glob(axis, raw if quoted is None else quoted, found.start(3))
        self.at = found.end()
        self._skip_blank()
        return Match(axis, glob)

    def _glob(self, axis: str, glob: str, at: int) -> str:
        """The glob, checked against what the axis takes and canonical where it is a plain value."""
        spec = BY_NAME[axis]
        if spec.kind == "choice" and _WILD.search(glob):
            if not any(fnmatchcase(choice, glob) for choice in spec.choices):
                raise self.error(f'no value of axis "{axis}" matches; it takes {", ".join(spec.choices)}', at)
            return glob
        if _WILD.search(glob):
            return glob
        if spec.kind == "int" and not re.fullmatch(r"0|-?[1-9][0-9]*", glob):
            raise self.error(f'axis "{axis}" takes integers', at)
        try:
            return str(coerce(axis, int(glob) if spec.kind == "int" else glob))
        except MatrixError as error:
            raise self.error(str(error), at) from None

    def _keyword(self, word: str) -> bool:
        found = _KEYWORD.match(self.text, self.at)
        if not found or found[1] != word:
            return False
        self.at = found.end()
        self._skip_blank()
        return True

    def _symbol(self, symbol: str) -> bool:
        if not self.text.startswith(symbol, self.at):
            return False
        self.at += 1
        self._skip_blank()
        return True

    def _skip_blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at
