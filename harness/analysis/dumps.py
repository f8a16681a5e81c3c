"""Reads what people paste: tracebacks, thread dumps of faulthandler, py-spy, gdb and pytest, also cut and mixed.

    dump = parse(text)
    dump.threads[0].frames[-1]          # innermost: frames are outermost first, whatever the text had
    dump.exceptions[0].message

`parse` raises nothing: a text in which it finds neither a thread nor an exception gives an empty, false `Dump`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from harness.analysis.dump_stacks import from_pyspy_json, headless_at, thread_at
from harness.analysis.dump_text import streams
from harness.analysis.dump_tracebacks import (
    IN_THREAD,
    alone_at,
    fatal_at,
    pytest_failures,
    summary_at,
    traceback_at,
)
from harness.analysis.dump_values import Dump, DumpThread, Frame, Raised

__all__ = ["Dump", "DumpThread", "Frame", "Raised", "join", "parse"]


def parse(text: str) -> Dump:
    """All threads and exceptions of the text."""
    threads = _pyspy_json(text)
    if threads:
        return Dump(threads)
    return join([_parse_stream(lines) for lines in streams(text)])


def join(dumps: Sequence[Dump]) -> Dump:
    """Several as one; the threads of each stay apart."""
    threads: list[DumpThread] = []
    exceptions: list[Raised] = []
    for dump in dumps:
        first = max((thread.dump for thread in threads), default=-1) + 1
        threads += [dataclasses.replace(thread, dump=first + thread.dump) for thread in dump.threads]
        exceptions += dump.exceptions
    return Dump(tuple(threads), tuple(dict.fromkeys(exceptions)))


def _pyspy_json(text: str) -> tuple[DumpThread, ...]:
    begin = text.find("[")
    if begin < 0 or '"frames"' not in text or text[:begin].strip().startswith("{"):
        return ()
    try:
        document, _ = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        return ()
    if not (isinstance(document, list) and all(isinstance(thread, dict) and "frames" in thread for thread in document)):
        return ()
    return from_pyspy_json(document)


class _Reader:
    """One pass over the lines of one writer."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.threads: list[DumpThread] = []
        self.exceptions: list[Raised] = []
        self.summary: list[Raised] = []
        self.fatal: Raised | None = None
        self.in_thread = ""
        self.dump = 0

    def read(self) -> Dump:
        """All of them."""
        at = 0
        while at < len(self.lines):
            at = max(self._step(at), at + 1) if self.lines[at].strip() else at + 1
        if self.fatal is not None:
            self.exceptions.append(self.fatal)
        if not self.exceptions:
            self.exceptions = self.summary
        return Dump(tuple(self.threads), tuple(self.exceptions))

    def _step(self, at: int) -> int:
        lines = self.lines
        if named := IN_THREAD.fullmatch(lines[at].strip()):
            self.in_thread = named["name"]
            return at + 1
        if lines[at].startswith(("Process ", "=== ", "Timeout (")):
            self.dump += bool(self.threads and self.threads[-1].dump == self.dump)
        if (fatal := fatal_at(lines, at)) is not None:
            self.fatal = fatal
            return at + 1
        if (found := thread_at(lines, at) or headless_at(lines, at)) is not None:
            self._add(found[1])
            return found[0]
        if (raised := traceback_at(lines, at, self.in_thread) or alone_at(lines, at, self.in_thread)) is not None:
            self.exceptions += raised[1]
            self.in_thread = ""
            return raised[0]
        if (short := summary_at(lines, at)) is not None:
            self.summary.append(short)
        return at + 1

    def _add(self, thread: DumpThread) -> None:
        same = [other for other in self.threads if other.dump == self.dump and _same(other, thread)]
        if same:
            self.dump += 1  # the process was looked at once more
        self.threads.append(dataclasses.replace(thread, dump=self.dump))
        if self.fatal is not None and thread.state == "current":
            self.exceptions.append(dataclasses.replace(self.fatal, frames=thread.frames, thread=thread.name))
            self.fatal = None


def _same(one: DumpThread, other: DumpThread) -> bool:
    if one.ident is not None and other.ident is not None:
        return one.ident == other.ident
    return one.native_id is not None and one.native_id == other.native_id


def _parse_stream(lines: Sequence[str]) -> Dump:
    found = _Reader(lines).read()
    failures = pytest_failures(lines)
    if failures:
        found = Dump(found.threads, (*failures, *(each for each in found.exceptions if each.frames)))
    return found
