"""Where the tables of one name stand in a TOML text, so that one can be changed and all the rest left as it was typed.

The standard library reads TOML and writes none. This reads just enough of the syntax to find the ends of things; that
the changed text means what it should is for the caller to check by parsing it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEADER = re.compile(r"\[\[?([^\]\n]*)\]\]?[^\n]*")
_KEY = re.compile(r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^=\n"'])+=[ \t]*""")
_SPACE = re.compile(r"(?:\s+|#[^\n]*)+")
_BARE = re.compile(r"\d{4}-\d\d-\d\d \d[^,\]}\s#]+|[^,\]}\s#]+")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\n])*"'),
    re.compile(r"'[^'\n]*'"),
)


@dataclass
class Block:
    """A table: `start` is the offset of its header's line, `end` that after the line of its last value.

    `values` maps keys to the spans of their values' text.
    """

    name: str
    start: int
    end: int
    values: dict[str, tuple[int, int]] = field(default_factory=dict)


def blocks(text: str, name: str) -> list[Block]:
    """The tables `[name]` or `[[name]]` of a text that is known to be TOML, in order."""
    found: list[Block] = []
    at = _skip(text, 0)
    while at < len(text):
        if text[at] == "[":
            header = _match(_HEADER, text, at)
            found.append(Block(_unquoted(header[1]), _line_start(text, at), _line_end(text, header.end())))
            at = header.end()
        else:
            key = _match(_KEY, text, at)
            end = _value_end(text, key.end())
            if found:
                found[-1].values[_unquoted(key[0].rstrip().removesuffix("="))] = (key.end(), end)
                found[-1].end = _line_end(text, end)
            at = end
        at = _skip(text, at)
    return [block for block in found if block.name == name]


def _value_end(text: str, at: int) -> int:
    for string in _STRINGS:
        if match := string.match(text, at):
            return match.end()
    if text[at] not in "[{":
        return _match(_BARE, text, at).end()
    closing = "]" if text[at] == "[" else "}"
    at = _skip(text, at + 1)
    while text[at] != closing:
        if closing == "}":
            at = _match(_KEY, text, at).end()
        at = _skip(text, _value_end(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at + 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _match(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    found = pattern.match(text, at)
    if found is None:
        raise ValueError(f"not TOML at offset {at}: {text[at : at + 20]!r}")
    return found


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _unquoted(name: str) -> str:
    return name.strip().strip("\"'")
