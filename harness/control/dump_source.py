"""What `harness explain` is given: a pasted text, a file of one, a row of results.jsonl, or a trial's folder."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.dump_stacks import from_pyspy_json
from harness.analysis.dump_values import waiting_for_locks
from harness.analysis.dumps import Dump, DumpThread, Raised, join, parse
from harness.control.find_trial import find_trial
from harness.core.errors import UserError
from harness.core.versions import parse_version

LARGEST = 64 << 20
"""Bytes. Dumps of thousands of threads stay far below; what is larger is a log in which someone has to look first."""

_DUMP_HEAD = re.compile(r"^process \d+ \(.+\)", re.MULTILINE)
_DUMP_STACK = re.compile(r"^  thread .+ \((?:stands still|computes|went on between two looks)(?:, .+)?\)$", re.MULTILINE)
"""What `harness dump` prints of a process, and above each of its stacks."""

_RESULT, _STACKS = "result.json", "stacks.txt"


@dataclass(frozen=True)
class Source:
    """`text`: all of it, for a message that stands in no form; `torch`: its version, where a trial says so."""

    dump: Dump
    text: str
    torch: str = ""


def read_source(name: str) -> Source:
    """Of a path, or "-" for standard input. Raises UserError: nothing there, empty, no text, too large, no trial."""
    if name == "-":
        return _from_text(_decode(sys.stdin.buffer.read(LARGEST + 1), "standard input"), "standard input")
    try:
        path = find_trial(Path(name))
        if path.is_dir():
            return _from_trial(path)
        with open(path, "rb") as stream:
            data = stream.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or "no such file"
        raise UserError(
            f"{name}: cannot be read: {why}; give a file, a trial's folder (reports/RUN/trials/ID), or - for standard input"
        ) from error
    return _from_text(_decode(data, name), name)


def _decode(data: bytes, name: str) -> str:
    if len(data) > LARGEST:
        raise UserError(f"{name}: larger than {LARGEST >> 20} MiB; cut out the tracebacks or the dump, and give only that")
    if not data.strip():
        raise UserError(f"{name}: empty; give a traceback, or the output of py-spy dump or of faulthandler")
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    text = data.decode("utf-8", "replace")
    sample = text[:100_000]
    if "\0" in sample or sample.count("\ufffd") > len(sample) // 20:
        raise UserError(f"{name}: no text; give a traceback, or the output of py-spy dump or of faulthandler, as text")
    return text


def _from_text(text: str, name: str) -> Source:
    documents = _documents(text)
    rows = [document for document in documents if isinstance(document.get("errors"), list)]
    if rows:
        return _join([_from_row(row) for row in rows], text)
    processes = [process for document in documents for process in _processes(document)]
    if processes:
        return _join([_from_process(process) for process in processes], text)
    if _DUMP_HEAD.search(text) and _DUMP_STACK.search(text):
        raise UserError(
            f"{name}: this is what `harness dump` printed, which names its hazards itself and has no whole stacks;"
            " give the output of `harness dump PID --json`, or of `py-spy dump`"
        )
    return Source(parse(text), text)


def _documents(text: str) -> list[Mapping[str, Any]]:
    """Of one JSON object, such as a `result.json`, or of one a line, such as a results.jsonl; [] for another text."""
    if not text.lstrip().startswith("{"):
        return []
    try:
        documents = [json.loads(text)]
    except ValueError:
        try:
            documents = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return []
    return [document for document in documents if isinstance(document, dict)]


def _processes(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Of `harness dump --json`, also with --tree: those with stacks."""
    processes = document.get("processes")
    found = processes if isinstance(processes, list) else [document]
    return [each for each in found if isinstance(each, dict) and _are_stacks(each.get("stacks"))]


def _are_stacks(stacks: object) -> bool:
    if not isinstance(stacks, list) or not stacks:
        return False
    frames = [thread.get("frames") if isinstance(thread, dict) else None for thread in stacks]
    return all(isinstance(each, list) and all(isinstance(frame, dict) for frame in each) for each in frames)


def _from_process(process: Mapping[str, Any]) -> Source:
    waits = process.get("waits")
    each = [wait for wait in waits if isinstance(wait, dict)] if isinstance(waits, list) else []
    locked = [wait.get("ident") for wait in each if wait.get("kind") == "lock"]
    threads = waiting_for_locks(from_pyspy_json(process["stacks"]), locked)
    return Source(Dump(threads), "", _version(process.get("torch")))


def _from_row(row: Mapping[str, Any]) -> Source:
    exceptions: list[Raised] = []
    for error in row["errors"]:
        if isinstance(error, dict):
            exceptions += raised_of(error)
    return Source(Dump((), tuple(exceptions)), "", _version(row.get("torch")))


def raised_of(error: Mapping[str, Any]) -> list[Raised]:
    """The exceptions of one error of a row, each with the threads that traced meanwhile."""
    meanwhile = _tracers(error.get("tracers") or ())
    found = parse(str(error.get("traceback") or "")).exceptions
    if not found:
        found = (Raised(str(error.get("type") or ""), str(error.get("message") or "")),)
    thread = str(error.get("thread") or "")
    return [dataclasses.replace(raised, thread=thread, meanwhile=meanwhile) for raised in found]


def _version(torch: object) -> str:
    """Of a row; "" where it is none, or damaged: then every version is thought of."""
    try:
        parse_version(str(torch or ""))
    except UserError:
        return ""
    return str(torch)


def _tracers(tracers: Sequence[Any]) -> tuple[DumpThread, ...]:
    found = []
    for tracer in tracers:
        if isinstance(tracer, dict):
            stacks = parse(f"Stack (most recent call last):\n{tracer.get('stack') or ''}").threads
            frames = stacks[0].frames if stacks else ()
            found.append(DumpThread(str(tracer.get("thread") or tracer.get("worker") or ""), frames=frames))
    return tuple(found)


def _from_trial(folder: Path) -> Source:
    parts: list[Source] = []
    result, stacks = folder / _RESULT, folder / _STACKS
    if result.exists():
        try:
            row = json.loads(result.read_text("utf-8"))
        except ValueError as error:
            raise UserError(f"{result}: no JSON: {error}") from error
        if isinstance(row, dict) and isinstance(row.get("errors"), list):
            parts.append(_from_row(row))
    if stacks.exists():
        text = stacks.read_text("utf-8", "replace")
        parts.append(Source(parse(text), text))
    if not parts:
        inside = "; it is a run: name one of its trials/" if (folder / "results.jsonl").exists() else ""
        raise UserError(f"{folder}: no trial's folder: it has neither {_RESULT} nor {_STACKS}{inside}")
    return _join(parts, "")


def _join(parts: Sequence[Source], text: str) -> Source:
    torches = {part.torch for part in parts if part.torch}
    return Source(join([part.dump for part in parts]), text, torches.pop() if len(torches) == 1 else "")
