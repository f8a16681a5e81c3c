"""What `harness explain` is given: a pasted text, a file of one, a row of results.jsonl, or a trial's folder."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.dump_stacks import from_pyspy_json
from harness.analysis.dump_values import waiting_for_locks
from harness.analysis.dumps import Dump, DumpThread, Raised, join, parse
from harness.analysis.row_signs import Sign, signs
from harness.control.find_trial import find_trial, only_trial
from harness.control.results import read_rows
from harness.core import errorfile
from harness.core.errors import UserError
from harness.core.jsontext import parse_json
from harness.core.outcome import FAILURES, OK
from harness.core.plan import ORDER_DONE
from harness.core.versions import parse_version

LARGEST = 64 << 20
"""Bytes. Dumps of thousands of threads stay far below; what is larger is a log in which someone has to look first."""

LONGEST_LOG = 4 << 20
"""Bytes of a trial's output that are read."""

_DUMP_HEAD = re.compile(r"^process \d+ \(.+\)", re.MULTILINE)
_DUMP_STACK = re.compile(r"^  thread .+ \((?:stands still|computes|went on between two looks)(?:, .+)?\)$", re.MULTILINE)
"""What `harness dump` prints of a process, and above each of its stacks."""

_RESULT, _STACKS, _SPEC, _LOG = "result.json", "stacks.txt", "spec.json", "stdout.txt"


@dataclass(frozen=True)
class Source:
    """`text`: all of it, for a message that stands in no form; `torch`: its version, where a trial says so.

    `signs`: what rows tell that is neither an exception nor a stack; `told`: what a dump has found, and a trial's reason.
    `ended_well`: it is a trial that did not fail.
    """

    dump: Dump
    text: str
    torch: str = ""
    signs: tuple[Sign, ...] = ()
    told: tuple[str, ...] = ()
    ended_well: bool = False


def read_source(name: str) -> Source:
    """Of a path, or "-" for standard input. Raises UserError: nothing there, empty, no text, too large, no trial."""
    if name == "-":
        if sys.stdin is None:  # where it was closed
            raise UserError("standard input is closed; give a file, or pipe the text in")
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
    found = parse(text)
    if not found.exceptions and _DUMP_HEAD.search(text) and _DUMP_STACK.search(text):
        raise UserError(
            f"{name}: this is what `harness dump` printed, which names its hazards itself and has no whole stacks;"
            " give the output of `harness dump PID --json`, or of `py-spy dump`"
        )
    return Source(found, text)


def _documents(text: str) -> list[Mapping[str, Any]]:
    """Of one JSON object, such as a `result.json`, or of one a line, such as a results.jsonl; [] for another text."""
    if not text.lstrip().startswith("{"):
        return []
    try:
        documents = [parse_json(text)]
    except ValueError:
        try:
            documents = [parse_json(line) for line in text.splitlines() if line.strip()]
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
    findings = process.get("findings")
    told = [finding for finding in findings if isinstance(finding, dict)] if isinstance(findings, list) else []
    texts = tuple(f"{finding.get('kind') or 'found'}: {finding.get('text')}" for finding in told if finding.get("text"))
    return Source(Dump(threads), "", _version(process.get("torch")), told=texts)


def _from_row(row: Mapping[str, Any], log: str = "") -> Source:
    exceptions: list[Raised] = []
    for error in row["errors"]:
        if isinstance(error, dict):
            exceptions += raised_of(error)
    return Source(Dump((), tuple(exceptions)), "", _version(row.get("torch")), tuple(signs(row, log)))


def raised_of(error: Mapping[str, Any]) -> list[Raised]:
    """The exceptions of one error of a row, each with the threads that traced meanwhile."""
    meanwhile = _tracers(error.get("tracers"))
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


def _tracers(tracers: object) -> tuple[DumpThread, ...]:
    found = []
    for tracer in tracers if isinstance(tracers, list) else ():
        if isinstance(tracer, dict):
            stacks = parse(f"Stack (most recent call last):\n{tracer.get('stack') or ''}").threads
            frames = stacks[0].frames if stacks else ()
            found.append(DumpThread(str(tracer.get("thread") or tracer.get("worker") or ""), frames=frames))
    return tuple(found)


def _from_trial(folder: Path) -> Source:
    result, stacks = folder / _RESULT, folder / _STACKS
    if not (result.exists() or stacks.exists()):
        single = only_trial(folder)
        if single is not None:
            return _from_trial(single)
        inside = "; it is a run: name one of its trials/" if (folder / "results.jsonl").exists() else ""
        raise UserError(f"{folder}: no trial's folder: it has neither {_RESULT} nor {_STACKS}{inside}")
    parts: list[Source] = []
    row = _document(result) if result.exists() else {}
    if isinstance(row.get("errors"), list):
        parts.append(_from_row({"scenario": _scenario(folder), **row}, _log(folder)))
        parts += _of_its_plan(folder, row)
        if row.get("reason") and row.get("outcome") in FAILURES:
            parts.append(Source(Dump(()), "", told=(f"{row['outcome']}: {row['reason']}",)))
    if stacks.exists():
        text = _read(stacks).decode("utf-8", "replace")
        parts.append(Source(parse(text), text))
    if not result.exists():  # the process ended before it could give its account: what killed it may stand in its output
        log = _log(folder)
        if errors := _told_before(folder):
            parts.insert(0, _from_row({"errors": errors, "torch": errors[0].get(errorfile.TORCH)}))
        parts.append(Source(Dump((), parse(log).exceptions), log))
    return dataclasses.replace(_join(parts, ""), ended_well=_ended_well(folder, row))


def _ended_well(folder: Path, result: Mapping[str, Any]) -> bool:
    """By its own account, and by the run's row where there is one: its losses may have been found wrong later."""
    if result.get("outcome") != OK or result.get("final") is False:  # a watched process that may be at it still
        return False
    place = folder.resolve()
    try:
        rows = [row for row in read_rows(place.parent.parent) if row["trial"] == place.name]
    except UserError:
        return False
    return all(row.get("outcome") == OK for row in rows)


def _told_before(folder: Path) -> list[dict[str, Any]]:
    """The errors of a trial whose process ended before its account was written."""
    try:
        return errorfile.read_errors(folder)
    except OSError as error:
        raise UserError(f"{folder / errorfile.NAME}: cannot be read: {error.strerror}") from error


def _of_its_plan(folder: Path, row: Mapping[str, Any]) -> list[Source]:
    """Where the trial has carried out a hazard's plan, and failed: what it was made to show comes before what fits too."""
    schedule = row.get("schedule")
    done = isinstance(schedule, dict) and schedule.get("order") == ORDER_DONE
    spec = folder / _SPEC
    extra = _document(spec).get("extra") if done and row.get("outcome") in FAILURES and spec.exists() else None
    hazard = str(extra.get("plan_of") or "") if isinstance(extra, dict) else ""
    why = "this trial carried out its plan, and the order came about"
    return [Source(Dump(()), "", "", (Sign(hazard, why, first=True),))] if hazard else []


def signs_of(folder: Path, row: Mapping[str, Any]) -> tuple[Sign, ...]:
    """What a trial tells that is neither an exception nor a stack: its row, and what only its folder has.

    Raises UserError: its result is no JSON, or a file of it cannot be read.
    """
    result = folder / _RESULT
    return tuple(signs({**(_document(result) if result.exists() else {}), **row}, _log(folder)))


def _scenario(folder: Path) -> object:
    """As its spec says; None for a watched process, which has no spec."""
    spec = folder / _SPEC
    return _document(spec).get("scenario") if spec.exists() else None


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = parse_json(_read(path).decode("utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: no JSON: {error}") from error
    return document if isinstance(document, dict) else {}


def _log(folder: Path) -> str:
    """The beginning of what the trial's process printed: a limit that is met is logged once."""
    path = folder / _LOG
    if not path.exists():
        return ""
    return _read(path, LONGEST_LOG).decode("utf-8", "replace")


def _read(path: Path, most: int = -1) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(most)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def _join(parts: Sequence[Source], text: str) -> Source:
    torches = {part.torch for part in parts if part.torch}
    told = dict.fromkeys(sign for part in parts for sign in part.signs)
    torch = torches.pop() if len(torches) == 1 else ""
    texts = dict.fromkeys(one for part in parts for one in part.told)
    return Source(join([part.dump for part in parts]), text, torch, tuple(told), tuple(texts))
