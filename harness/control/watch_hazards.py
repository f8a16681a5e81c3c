"""Hazards of the catalogue behind what a watch saw: its errors, and state that leaked without one.

    row["problems"] += [vars(one) for one in named(row)]

The hazards of a hang are named while it hangs, by its stacks: see `watch_hangs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.core.versions import parse_version

if TYPE_CHECKING:
    from harness.analysis.explain import Match

HAZARD = "hazard"


@dataclass(frozen=True)
class Named:
    """A problem of a row that names a hazard with its remedy. `of`: the topic of what it explains, such as "fx_error"."""

    text: str
    of: str
    label: str = HAZARD


def named(row: Mapping[str, Any]) -> list[Named]:
    """One for each hazard: of each kind of error what fits it best, and what the row tells for certain without an error.

    `row` is of results.jsonl; hazards that its problems name already are left out.
    """
    from harness.analysis.row_signs import NAMED  # with the catalogue: the start of a program does not wait for it

    known = {found[1] for one in row.get("problems") or () if (found := NAMED.match(str(one.get("text"))))}
    kept: list[Named] = []
    for match, of in (*_of_errors(row), *_of_signs(row)):
        if match.hazard.id not in known:
            known.add(match.hazard.id)
            kept.append(Named(words(match, silent=match.exception is None), of))
    return kept


def words(match: Match, *, silent: bool = False) -> str:
    """`this is annotate-collision: …; remedy: …`. `silent`: nothing was raised, so it is said what follows."""
    hazard = match.hazard
    follows = f" ({_first_clause(hazard.effect)})" if silent else ""
    verb = "is" if match.certain else "may be"
    return f"this {verb} {hazard.id}: {hazard.title}{follows}; remedy: {hazard.remedy}"


def _first_clause(effect: str) -> str:
    """Of the effect in the catalogue, whose A compiles while B does something else."""
    first = re.split(r"\. |; ", effect, maxsplit=1)[0].rstrip(".")
    return re.sub(r"\bB\b", "another thread", first)


def _of_errors(row: Mapping[str, Any]) -> Iterator[tuple[Match, str]]:
    from harness.analysis.dumps import Dump
    from harness.analysis.explain import match

    from .dump_source import raised_of

    kinds: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for error in row["errors"]:
        kinds.setdefault((str(error["label"]), str(error["fingerprint"])), []).append(error)
    for (label, _), errors in kinds.items():
        raised = tuple(each for error in errors for each in raised_of(error))
        found = match(Dump((), raised), torch=_torch(row))
        if found:
            yield found[0], label


def _of_signs(row: Mapping[str, Any]) -> Iterator[tuple[Match, str]]:
    from harness.analysis.row_signs import joined, signs

    told: Sequence[Any] = [sign for sign in signs(row) if sign.certain]
    for match in joined([], told, _torch(row)):
        yield match, "dense" if match.hazard.id.startswith("dense-") else "state_leak"


def _torch(row: Mapping[str, Any]) -> str:
    """Its version; "" where it is none that can be compared: then every version is thought of."""
    torch = str(row.get("torch") or "")
    try:
        parse_version(torch)
    except UserError:
        return ""
    return torch
