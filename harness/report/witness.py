"""A witness as people read it: numbered lines, a column a thread, each event with its place in the source."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

NARROWEST = 28


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
    column = max(NARROWEST, (width - 5) // len(seats) - 2)
    heads = [f"{roles[seat]} = {seat}" if seat in roles else seat for seat in seats]
    lines = ["     " + "  ".join(head[:column].ljust(column) for head in heads).rstrip()]
    lines.append("     " + "  ".join("-" * column for _ in seats))
    for number, event in enumerate(shown, start=1):
        place = seats.index(str(event["seat"]))
        for at, text in enumerate(_texts(event, column)):
            margin = f"{number:3d}  " if at == 0 else "     "
            lines.append((margin + " " * place * (column + 2) + text).rstrip())
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
    for source in (event.get("torch"), event.get("source")):
        if source:
            path, _, function = str(source).partition(" ")
            texts += textwrap.wrap(
                f"{_short(path)} {function}",
                column,
                initial_indent="  ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    return texts


def _short(path: str) -> str:
    """The last three parts: enough to find it."""
    return "/".join(path.split("/")[-3:])
