"""Dumps of a process' threads: faulthandler, py-spy (text and JSON), gdb's py-bt, pytest-timeout, traceback.print_stack."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.analysis.dump_values import ROOTS, DumpThread, Frame

Found = tuple[int, DumpThread]
"""(the first line that is not the thread's, the thread)."""

_FAULTHANDLER = re.compile(
    r"(?P<current>Current thread|Thread) 0x(?P<ident>[0-9a-fA-F]+)(?: \[(?P<name>.*)\])? \(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d+|\?+) in (?P<function>.+)')
_PYSPY = re.compile(
    r"Thread (?P<number>0x[0-9a-fA-F]+|\d+)(?:/(?P<other>0x[0-9a-fA-F]+|\d+))? "
    r'\((?P<state>(?:idle|active)[\w+ ]*)\)(?:: "(?P<name>.*)")?\s*'
)
_GDB = re.compile(r'Thread \d+ \((?:Thread 0x(?P<ident>[0-9a-fA-F]+) )?\(?LWP (?P<lwp>\d+)\)?(?: "(?P<name>[^"]*)")?\):?.*')
_GDB_BEGIN = "Traceback (most recent call first):"
_STACK_OF = re.compile(r"~+ Stack of (?P<name>.+) \((?P<ident>\d+)\) ~+")
_PRINTED = re.compile(r"\s*Stack \(most recent call last\):")
FRAME = re.compile(r'(?P<indent>\s*)File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_CUT = re.compile(
    r"\s*(?:\.\.\.|…|\[\.\.\.\]|\[…\]|<truncated[^>]*>|[<[(](?:snip|truncated|cut)[])>]|\.\.\. repeats.*)\s*", re.IGNORECASE
)

_LEFT_OUT = re.compile(r"\s*(?:\[Previous line|\.\.\.|\[?…)")


def slashes(path: str) -> str:
    """A path with "/" for "\\", so that one of Windows compares."""
    return path.replace("\\", "/")


def number(text: str | None, base: int = 10) -> int | None:
    """A number of a line or a thread; None where there is none, or what stands there is too long to be one."""
    return int(text, base) if text and len(text) <= 20 else None


def thread_at(lines: Sequence[str], at: int) -> Found | None:
    """The thread whose header is line `at`; None when that is no header."""
    line = lines[at].strip()
    if header := _FAULTHANDLER.match(line):
        return _faulthandler(lines, at + 1, header)
    if header := _PYSPY.fullmatch(line):
        return _pyspy(lines, at + 1, header)
    if header := _GDB.fullmatch(line):
        return _gdb(lines, at + 1, header)
    if line == _GDB_BEGIN:
        return _gdb(lines, at, None)
    if header := _STACK_OF.fullmatch(line):
        end, frames = printed_frames(lines, at + 1)
        return end, DumpThread(header["name"], number(header["ident"]), frames=frames, cut_outer=_rootless(frames))
    if _PRINTED.match(lines[at]):
        end, frames = printed_frames(lines, at + 1)
        return end, DumpThread(frames=frames, cut_outer=_rootless(frames))
    return None


def headless_at(lines: Sequence[str], at: int) -> Found | None:
    """A stack whose header was cut off: at least two frames as faulthandler or py-spy write them."""
    if _FAULT_FRAME.fullmatch(lines[at]):
        return _faulthandler(lines, at, None)
    if at + 1 < len(lines) and all(_python_frame(lines[each]) for each in (at, at + 1)):
        return _pyspy(lines, at, None)
    return None


def printed_frames(lines: Sequence[str], at: int) -> tuple[int, tuple[Frame, ...]]:
    """Frames as a traceback has them, outermost first, with their lines of source; the first line after them."""
    frames: list[Frame] = []
    indent = 0
    while at < len(lines):
        frame = FRAME.fullmatch(lines[at])
        if frame:
            indent = len(frame["indent"])
            frames.append(Frame((frame["function"] or "").strip(), slashes(frame["file"]), number(frame["line"])))
        elif not frames or not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip()) <= indent - 1:
            if not (frames and _CUT.fullmatch(lines[at])):
                break
        elif len(lines[at]) - len(lines[at].lstrip()) <= indent and not _LEFT_OUT.match(lines[at]):
            break
        at += 1
    return at, tuple(frames)


def _faulthandler(lines: Sequence[str], at: int, header: re.Match[str] | None) -> Found:
    frames: list[Frame] = []
    cut_outer = cut_inner = False
    while at < len(lines):
        frame = _FAULT_FRAME.fullmatch(lines[at])
        if frame:
            line = None if "?" in frame["line"] else number(frame["line"])
            frames.append(Frame(frame["function"].strip(), slashes(frame["file"]), line))
        elif _CUT.fullmatch(lines[at]):
            cut_outer, cut_inner = cut_outer or bool(frames), cut_inner or not frames
        elif not lines[at].strip().startswith(("<", "Garbage-collecting")):  # <no Python frame>, <tstate is freed>
            break
        at += 1
    frames.reverse()
    if header is None:
        return at, DumpThread(frames=tuple(frames), cut_outer=True, cut_inner=True)
    return at, DumpThread(
        name=(header["name"] or "").strip(),
        ident=number(header["ident"], 16),
        state="current" if header["current"].startswith("Current") else "",
        frames=tuple(frames),
        cut_outer=cut_outer or _rootless(frames),
        cut_inner=cut_inner,
    )


def _pyspy(lines: Sequence[str], at: int, header: re.Match[str] | None) -> Found:
    frames: list[Frame] = []
    cut_outer = cut_inner = False
    indent: int | None = None
    while at < len(lines):
        line = lines[at]
        deep = len(line) - len(line.lstrip())
        frame = _pyspy_frame(line) if line.strip() and (indent is None or deep == indent) else None
        if frame is not None:
            indent = deep
            frames.append(frame)
        elif _CUT.fullmatch(line) and line.strip():
            cut_outer, cut_inner = cut_outer or bool(frames), cut_inner or not frames
        elif not line.strip() or deep <= (indent or 0):
            break  # deeper lines are --locals
        at += 1
    frames.reverse()
    if header is None:
        return at, DumpThread(frames=tuple(frames), cut_outer=True, cut_inner=True)
    first, other = (number(text, 16 if text and text[:2] == "0x" else 10) for text in (header["number"], header["other"]))
    is_ident = header["number"].startswith("0x")
    return at, DumpThread(
        name=header["name"] or "",
        ident=first if is_ident else other,
        native_id=other if is_ident else first,
        state=header["state"],
        frames=tuple(frames),
        cut_outer=cut_outer or _rootless(frames),
        cut_inner=cut_inner,
    )


def _pyspy_frame(line: str) -> Frame | None:
    """`Engine::evaluate(int) (libtorch.so)`, `wait (C:/Program Files (x86)/threading.py:327)`: where does the name end?"""
    text = line.strip()
    if not text.endswith(")"):
        return None
    at = len(text)
    while (at := text.rfind(" (", 0, at)) > 0:
        function, inside = text[:at], text[at + 2 : -1]
        if function.count("(") == function.count(")") and inside.count("(") == inside.count(")") and inside:
            file, colon, line_number = inside.rpartition(":")
            if colon and line_number.isdecimal():
                return Frame(function, slashes(file), number(line_number))
            return Frame(function, slashes(inside))
    return None


def _python_frame(line: str) -> bool:
    frame = _pyspy_frame(line) if line[:1] in (" ", "\t") else None
    return frame is not None and frame.line is not None and frame.file.endswith((".py", ">"))


def _gdb(lines: Sequence[str], at: int, header: re.Match[str] | None) -> Found:
    frames: list[Frame] = []
    while at < len(lines) and not lines[at].strip():
        at += 1
    native = re.compile(r"#\d+\s+(?:0x[0-9a-fA-F]+ in )?(?P<function>\S.*?) \(.*?(?: from (?P<lib>\S+)| at (?P<at>\S+))?$")
    while at < len(lines):
        line = lines[at]
        if frame := FRAME.fullmatch(line):
            frames.append(Frame((frame["function"] or "").strip(), slashes(frame["file"]), number(frame["line"])))
        elif call := native.match(line):
            frames.append(Frame(call["function"], slashes(call["lib"] or call["at"] or "")))
        elif not (line.startswith("  ") or line.strip() == _GDB_BEGIN):
            break
        at += 1
    frames.reverse()
    if header is None:
        return at, DumpThread(frames=tuple(frames), cut_outer=_rootless(frames))
    return at, DumpThread(
        name=header["name"] or "",
        ident=number(header["ident"], 16),
        native_id=number(header["lwp"]),
        frames=tuple(frames),
        cut_outer=_rootless(frames),
    )


def _rootless(frames: Sequence[Frame]) -> bool:
    """Whether a whole stack would begin otherwise. Threads that C++ started have no root either."""
    python = [frame for frame in frames if frame.is_python]
    return not (python and python[0].function.rsplit(".", 1)[-1] in ROOTS)


def from_pyspy_json(document: Sequence[Mapping[str, Any]]) -> tuple[DumpThread, ...]:
    """Of `py-spy dump --json`. What is no number where one belongs counts as missing, what is no frame is passed over."""
    pids = [_whole(thread.get("pid")) for thread in document]
    processes = list(dict.fromkeys(pids))
    found = []
    for thread, pid in zip(document, pids, strict=True):
        given = thread.get("frames")
        frames = tuple(
            Frame(_text(frame.get("name")), slashes(_text(frame.get("filename"))), _whole(frame.get("line")) or None)
            for frame in reversed(given if isinstance(given, list) else [])
            if isinstance(frame, dict)
        )
        found.append(
            DumpThread(
                name=_text(thread.get("thread_name")),
                ident=_whole(thread.get("thread_id")),
                native_id=_whole(thread.get("os_thread_id")),
                state=("active" if thread.get("active") else "idle") + ("+gil" if thread.get("owns_gil") else ""),
                frames=frames,
                cut_outer=_rootless(frames),
                dump=processes.index(pid),
            )
        )
    return tuple(found)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
