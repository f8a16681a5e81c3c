"""Torch versions and conditions on them, as expectations and hazards write them: ``<2.12``, ``>=2.12,<2.14``.

Only the release numbers count. Unlike PEP 440, a development build of 2.12 (``2.12.0.dev20260101``) counts as
2.12 and not as something before it, because it holds the code of 2.12.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.core.errors import UserError

Version = tuple[int, ...]

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)")
_CLAUSE = re.compile(r"(<=|>=|==|!=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")
_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def parse_version(text: str) -> Version:
    """The release numbers of a version as written: ``2.11.0+cu130`` → ``(2, 11, 0)``.

    Raises:
        UserError: the text does not begin with a number.
    """
    found = _RELEASE.match(text.strip())
    if not found:
        raise UserError(f'"{text}" is not a version; write one like 2.11 or 2.11.0+cu130')
    return tuple(int(part) for part in found[1].split("."))


@dataclass(frozen=True)
class Clause:
    """One comparison. ``prefix``: the version stands for all versions that begin so (``==2.11.*``)."""

    compare: str
    numbers: Version
    prefix: bool

    def contains(self, version: Version) -> bool:
        """Whether a version, as ``parse_version`` returns it, fulfils the comparison: 2.12 is 2.12.0."""
        length = max(len(version), len(self.numbers))
        left, right = (numbers + (0,) * (length - len(numbers)) for numbers in (version, self.numbers))
        if self.prefix:
            left, right = left[: len(self.numbers)], self.numbers
        return _COMPARE[self.compare](left, right)


@dataclass(frozen=True)
class Specifier:
    """Comparisons that must all hold; none holds for every version."""

    text: str
    clauses: tuple[Clause, ...]

    def contains(self, version: str) -> bool:
        """Whether ``version`` (``torch.__version__``) fulfils every clause; raises as ``parse_version``."""
        numbers = parse_version(version)
        return all(clause.contains(numbers) for clause in self.clauses)


def parse_specifier(text: str) -> Specifier:
    """Read a condition; blank text holds for every version.

    Raises:
        UserError: a clause cannot be read.
    """
    if not text.strip():
        return Specifier("", ())
    return Specifier(text.strip(), tuple(_clause(part.strip(), text) for part in text.split(",")))


def _clause(part: str, text: str) -> Clause:
    found = _CLAUSE.fullmatch(part)
    if not found or (found[3] and found[1] not in ("==", "!=")):
        raise UserError(
            f'cannot read "{part}" in version condition "{text}"; write e.g. "<2.12", ">=2.12,<2.14" or "==2.11.*"'
        )
    return Clause(found[1], parse_version(found[2]), prefix=found[3] is not None)
