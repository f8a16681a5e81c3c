"""A witness as people read it: numbered lines, a column a thread, each event with its place in the source."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

NARROWEST = 16
"""Of a column; where that many do not fit beside each other, the events stand below each other, each with its thread."""

ROOMY = 28
"""From that many columns on there is room to indent."""

MOST_PARTS = 3
"""Of a path: enough to find it. Where they do not fit, fewer."""


def interleaving(witness: Sequence[Mapping[str, Any]], width: int = 110) -> list[str]:
    """The steps of the last attempt, and who was held for them until when. [] for no witness."""
    shown = _last_attempt(witness)
    if not shown:
        return []
    seats = list(dict.fromkeys(str(event["seat"]) for event in shown))
    roles: dict[str, str] = {}
    for event in shown:
        if event.get("role"):
            roles.setdefault(str(event["seat"]), str(event["role"]))
    heads = [f"{roles[seat]} = {seat}" if seat in roles else seat for seat in seats]
    column = (width - 5) // len(seats) - 2
    if column < NARROWEST:
        return _below_each_other(shown, dict(zip(seats, heads, strict=True)), width)
    titles = [textwrap.wrap(head, column) for head in heads]
    lines = []
    for at in range(max(len(title) for title in titles)):
        cells = (title[at] if at < len(title) else "" for title in titles)
        lines.append(("     " + "  ".join(cell.ljust(column) for cell in cells)).rstrip())
    lines.append("     " + "  ".join("-" * column for _ in seats))
    for number, event in enumerate(shown, start=1):
        place = seats.index(str(event["seat"]))
        for at, text in enumerate(_texts(event, column)):
            margin = f"{number:3d}  " if at == 0 else "     "
            lines.append((margin + " " * place * (column + 2) + text).rstrip())
    return lines


def _below_each_other(shown: Sequence[Mapping[str, Any]], heads: Mapping[str, str], width: int) -> list[str]:
    column = max(NARROWEST, width - 5)
    lines = []
    for number, event in enumerate(shown, start=1):
        texts = [*textwrap.wrap(f"{heads[str(event['seat'])]}:", column), *_texts(event, column)]
        lines += [f"{number:3d}  {texts[0]}", *(f"     {text}" for text in texts[1:])]
    return lines


def _last_attempt(witness: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """From the first step of the newest attempt on; what was let go when earlier ones ended is not part of it."""
    newest = max((int(event.get("attempt", 0)) for event in witness), default=0)
    begin = next((i for i, event in enumerate(witness) if int(event.get("attempt", 0)) == newest), 0)
    return list(witness[begin:])


def _texts(event: Mapping[str, Any], column: int) -> list[str]:
    info = f" {event['info']}" if event.get("info") else ""
    head = f"{event['point']}{info}"
    if event["event"] != "step":
        head = f"({head}: was held until now)"
    elif event.get("name"):
        head += f'  "{event["name"]}"'
    texts = textwrap.wrap(head, column)
    first, more = ("  ", "    ") if column >= ROOMY else (" ", " ")
    for source in (event.get("torch"), event.get("source")):
        if source:
            path, _, function = str(source).partition(" ")
            texts += textwrap.wrap(
                f"{_short(path, column - len(first))} {function}",
                column,
                initial_indent=first,
                subsequent_indent=more,
                break_on_hyphens=False,
            )
    return texts


def _short(path: str, longest: int) -> str:
    """The last parts of it, as many as fit; a file's name that does not is parted from the line's number."""
    parts = path.split("/")
    short = next((name for n in range(MOST_PARTS, 0, -1) if len(name := "/".join(parts[-n:])) <= longest), "")
    return short or parts[-1].replace(":", " :")
