"""Exceptions in a text: Python's tracebacks, whole or cut, their chains, pytest's forms, and bare messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import overload

from harness.analysis.dump_stacks import FRAME, number, printed_frames, slashes, thread_at
from harness.analysis.dump_values import ROOTS, Frame, Raised

HEADER = re.compile(r"(?P<indent>\s*)(?:.*\b)?Traceback \(most recent call last\):\s*")
IN_THREAD = re.compile(r"(?:Exception|Error) in thread (?P<name>.+):\s*")
FATAL = re.compile(r"Fatal Python error: (?P<what>.+)")
_CHAIN = re.compile(r"(?:During handling of the above exception|The above exception was the direct cause)")
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?")
_ALONE = re.compile(
    r"(?:E {3,})?(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failed|Interrupt|Exit|Group|Warning|Unsupported))"
    r"(?:: (?P<message>.*))?"
)
_SUMMARY = re.compile(r"(?:FAILED|ERROR) \S+\.py\S*(?: \S+)? - (?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?")
_LOG_LINE = re.compile(r"(?:\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d:\d\d|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|[IWEF]\d{4} )")
_BELONGS = re.compile(r"\s|from user code:|Set TORCH|You can suppress|While executing|Original traceback|Debug|tensor at")
_PYTEST_RULE = re.compile(r"(?:=+|_+|-{4,}) .* (?:=+|_+|-{4,})|(?:_ )+_?")
_PYTEST_IN = re.compile(r"(?P<file>\S.*?):(?P<line>\d+): in (?P<function>\S.*)")
_PYTEST_AT = re.compile(r"(?P<file>\S.*\.py):(?P<line>\d+): ?(?P<type>[\w.]+)?(?:: .*)?")
_PYTEST_DEF = re.compile(r"(?:>| ) {3,}(?:async )?def (?P<name>\w+)\(")
_PYTEST_E = re.compile(r"E(?: {3} *(?P<text>.*))?")
LONGEST_MESSAGE = 8_000
MOST_LINES = 200


def traceback_at(lines: Sequence[str], at: int, thread: str = "") -> tuple[int, list[Raised]] | None:
    """The exception whose traceback begins at line `at`, by its header or, where that was cut off, by a frame."""
    header = HEADER.fullmatch(lines[at])
    if header is None and not (FRAME.fullmatch(lines[at]) and ", in " in lines[at]):
        return None
    begin = at + 1 if header else at
    indent = len(header["indent"]) if header else 0
    body = _Dedented(lines, begin, min(20 * MOST_LINES, len(lines) - begin), indent)
    end, frames = printed_frames(body, 0)
    cut = header is None or not frames or frames[0].function.rsplit(".", 1)[-1] not in ROOTS
    while end < len(body) and (not body[end].strip() or body[end].strip() in ("...", "…", "[...]")) and end < 3:
        end += 1
    raised = _RAISED.fullmatch(body[end].strip()) if end < len(body) else None
    if raised is None or HEADER.fullmatch(body[end]):
        return begin + end, [Raised("", "", frames, thread, cut)] if frames else []
    end, found = _messages(body, end, frames, thread, cut)
    return begin + end, found


def _messages(body: Sequence[str], at: int, frames: tuple[Frame, ...], thread: str, cut: bool) -> tuple[int, list[Raised]]:
    """What was raised, from its line on. A message that quotes another exception ("raised:\\nRuntimeError: …") is two."""
    first = at
    while at < len(body) and at - first < MOST_LINES and (at == first or not _ends_message(body, at)):
        at += 1
    found: list[Raised] = []
    for each in range(first, at):
        line = body[each].strip()
        match = _RAISED.fullmatch(line) if each == first else _ALONE.fullmatch(line) if body[each][:1].strip() else None
        if match is None:
            continue
        message = "\n".join([match["message"] or "", *body[each + 1 : at]]).strip()
        found.append(Raised(match["type"], message[:LONGEST_MESSAGE], frames, thread, cut))
    return at, found


def _ends_message(body: Sequence[str], at: int) -> bool:
    line = body[at]
    if HEADER.fullmatch(line) or _CHAIN.match(line) or IN_THREAD.fullmatch(line) or FATAL.match(line):
        return True
    if _LOG_LINE.match(line) or _PYTEST_RULE.fullmatch(line) or thread_at(body, at) is not None:
        return True
    if line.strip():
        return False
    # A blank line: messages of Dynamo and of checkpoints go on after one.
    following = next((other for other in body[at + 1 : at + 4] if other.strip()), None)
    return following is None or not _BELONGS.match(following)


def alone_at(lines: Sequence[str], at: int, thread: str = "") -> tuple[int, list[Raised]] | None:
    """An exception of which only "Type: message" is there."""
    if not _ALONE.fullmatch(lines[at].strip()) or lines[at][:1] == "E":
        return None
    end, found = _messages([lines[at].strip(), *lines[at + 1 : at + MOST_LINES]], 0, (), thread, True)
    return at + end, found


def summary_at(lines: Sequence[str], at: int) -> Raised | None:
    """A line of pytest's short summary."""
    match = _SUMMARY.fullmatch(lines[at].strip())
    return Raised(match["type"], match["message"] or "", cut_outer=True) if match else None


def fatal_at(lines: Sequence[str], at: int) -> Raised | None:
    """`Fatal Python error: Segmentation fault`; its frames are those of the thread that faulthandler calls current."""
    match = FATAL.match(lines[at].strip())
    return Raised("Fatal Python error", match["what"]) if match else None


def pytest_failures(lines: Sequence[str]) -> list[Raised]:
    """What pytest shows with `--tb` auto, long, short or line: the `E` lines and the places before or after them."""
    found: list[Raised] = []
    frames: list[Frame] = []
    said: list[str] = []
    function = ""

    def flush() -> None:
        nonlocal frames, said
        text = "\n".join(said)
        if text.startswith("assert "):
            text = f"AssertionError: {text}"  # pytest leaves the type out
        match = _RAISED.match(text)
        if match:
            message = text[match.end("type") :].removeprefix(":").strip()
            found.append(Raised(match["type"], message[:LONGEST_MESSAGE], tuple(frames), cut_outer=True))
        frames, said = [], []

    for line in lines:
        if (e_line := _PYTEST_E.fullmatch(line)) and (said or e_line["text"]):
            said.append(e_line["text"] or "")
        elif place := _PYTEST_IN.fullmatch(line):
            if said:
                flush()
            frames.append(Frame(place["function"], slashes(place["file"]), number(place["line"])))
        elif place := _PYTEST_AT.fullmatch(line):
            frames.append(Frame(function, slashes(place["file"]), number(place["line"])))
            if said:
                flush()
        elif head := _PYTEST_DEF.match(line):
            function = head["name"]
        elif _CHAIN.match(line) or re.fullmatch(r"_{3,} .* _{3,}|={3,} .* ={3,}", line):
            flush()
    flush()
    return found


class _Dedented(Sequence[str]):
    """`count` lines from `begin` on without their indent; each is cut when it is looked at, as most never are."""

    def __init__(self, lines: Sequence[str], begin: int, count: int, indent: int) -> None:
        self._lines, self._begin, self._count, self._indent = lines, begin, count, indent

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(self._count))]
        if not 0 <= at < self._count:
            raise IndexError(at)
        line = self._lines[self._begin + at]
        return line[self._indent :] if not line[: self._indent].strip() else line
