"""Makes the lines of a pasted text comparable: colours off, log prefixes off, what several ranks wrote taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ESCAPED = re.compile(r"Traceback \(most recent call last\):\\n")
_MARKER = re.compile(
    r"Traceback \(most recent call (?:last|first)\):"
    r"|(?:Current thread|Thread) 0x[0-9a-fA-F]+ (?:\[[^]]*\] )?\(most recent call first\):"
    r"|Thread (?:0x)?[0-9a-fA-F]+ \((?:idle|active)"
    r"|Process \d+: "
    r"|Fatal Python error: "
    r"|File \"[^\"\n]+\", line \d+"
)
_TIME = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]?(?:\d\d:\d\d:\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_NO_PREFIX = re.compile(
    r"\s*[|+]?\s*(?:(?:Exception Group|Remote) )?|E\s+|.*\b(?:trace|from|in|at|ignored)\b:?\s*", re.IGNORECASE
)
_LOOK_AHEAD = 4
LONGEST_LINE = 20_000


def streams(text: str) -> list[list[str]]:
    """The lines of the text, one list for each writer: what has no prefix first, then one list a prefix.

    A prefix is what stands before a line that begins a stack, if the lines after it begin the same but for the time:
    `[rank0]: `, `2026-01-02 03:04:05,678 ERROR `, `trainer-1  | `.
    """
    lines = [line[:LONGEST_LINE].rstrip() for line in _clean(text).split("\n")]
    prefixes = _prefixes(lines)
    found: dict[str, list[str]] = {"": []}
    for line in lines:
        for key, pattern in prefixes.items():
            begin = pattern.match(line)
            if begin:
                found.setdefault(key, []).append(line[begin.end() :])
                break
        else:
            found[""].append(line)
    return [_without_bars(each) for each in found.values()]


def _clean(text: str) -> str:
    text = _ANSI.sub("", text.lstrip("\ufeff")).replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ")
    if "(most recent call last):\\n" in text:  # a log whose lines are JSON
        text = "\n".join(_unescape(line) if _ESCAPED.search(line) else line for line in text.split("\n"))
    return text


def _unescape(line: str) -> str:
    begin = line.index("Traceback (most recent call last):")
    rest = re.sub(r'(?<!\\)"(?=[,}\]]).*$', "", line[begin:])  # the end of the JSON string
    return rest.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


def _prefixes(lines: list[str]) -> dict[str, re.Pattern[str]]:
    """Prefix with its times blanked → the pattern of a line that has it; the longest first."""
    found: dict[str, re.Pattern[str]] = {}
    for number, line in enumerate(lines):
        marker = _MARKER.search(line)
        if marker is None or _NO_PREFIX.fullmatch(line[: marker.start()]):
            continue
        prefix = line[: marker.start()]
        if marker[0].startswith("File"):
            prefix = prefix.rstrip(" ") + " " if prefix.endswith(" ") else prefix
        key = _TIME.sub("\0", prefix)
        if key in found:
            continue
        pattern = re.compile(r"[\d:., TZ/+-]+".join(re.escape(part) for part in key.split("\0")).replace(r"\ ", " "))
        following = [other for other in lines[number + 1 : number + 1 + _LOOK_AHEAD] if other.strip()]
        if following and sum(1 for other in following if pattern.match(other)) >= len(following) / 2:
            found[key] = pattern
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _without_bars(lines: Iterable[str]) -> list[str]:
    """An exception group as tracebacks one after another: the bars in front of its lines taken off."""
    inside = False
    out = []
    for line in lines:
        if re.match(r"\s*\+ Exception Group Traceback \(most recent", line):
            inside = True
            out.append("Traceback (most recent call last):")
        elif inside and re.match(r"\s*\+[-+]*-{4,}", line):
            out.append("")
        elif inside and (bar := re.match(r"\s+\| ?", line)):
            out.append(line[bar.end() :])
        else:
            inside = False if line.strip() else inside
            out.append(line)
    return out
