"""What `harness dump` found, as text and as JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from harness.analysis.explain import Match
from harness.control.dump import ProcessDump, TreeDump, of_rank
from harness.core.stuck.views import MOST_TOLD, ThreadView

FRAMES = 12  # of a stack, shown; the JSON has all
NATIVE = 3
COLUMNS = 80


def process_text(dump: ProcessDump, *, stacks: bool = True) -> str:
    """One process: what is wrong, who waits for whom, the stacks."""
    lines = [_title(dump)]
    if dump.note:
        lines += _fold(f"note: {dump.note}")
    if dump.failed:
        return "\n".join(lines) + "\n"
    if dump.record is not None:
        lines.append(f"  its own account: {dump.record.folder}")
        if dump.record.told:
            lines += _fold(f"its watchdog says: {dump.record.told}")
    findings = dump.diagnosis.findings
    for finding in findings[:MOST_TOLD]:
        lines += _fold(f"{_KINDS[finding.kind]}: {finding.text}")
    if len(findings) > MOST_TOLD:
        lines.append(f"  and {len(findings) - MOST_TOLD} more, see --json")
    for found in dump.hazards:
        lines += _hazard(found)
    if not dump.hazards and not any(thread.native for thread in dump.threads):
        lines += _fold(f"no hazard: {_NO_NATIVE}")
    if not dump.explained:
        lines += _fold("no culprit: nothing here is known to be wrong" + _why_not(dump))
    shown = [wait for wait in dump.diagnosis.waits if not wait.idle]
    if shown:
        lines.append("  who waits for whom")
        for wait in shown:
            names = {thread.ident: thread.name for thread in dump.threads}
            by = ", ".join(f"{names.get(i, str(i))} {has}" for i, has in wait.helpers.items()) or wait.nobody
            limit = ", with a time limit" if wait.timed else ""
            lines += _fold(f"{wait.thread.name}: {wait.what}{limit}" + (f": {by}" if by else ""), 4)
    if stacks:
        for thread in dump.threads:
            lines += _stack(thread)
    return "\n".join(lines) + "\n"


def tree_text(tree: TreeDump) -> str:
    """All processes: the odd rank first, then what is wrong in each, stacks of one rank of each kind."""
    count = len(tree.dumps)
    lines = [f"process {tree.launcher.pid}: {count} Python process{'es' if count > 1 else ''} at and below it"]
    shown = {dump.process.pid for dump in tree.dumps if not dump.process.rank}
    if tree.odd is not None:
        lines += _odd(tree)
        first = {group[0] for group in tree.odd.groups} | set(tree.odd.odd)
        shown |= {dump.process.pid for dump in of_rank(tree.dumps) if dump.process.rank in first}
    elif len(tree.dumps) > 1:
        lines.append("no ranks: fewer than two of them have RANK in their environment")
    text = "\n".join(lines) + "\n"
    return text + "".join("\n" + process_text(dump, stacks=dump.process.pid in shown) for dump in tree.dumps)


def _odd(tree: TreeDump) -> list[str]:
    assert tree.odd is not None
    places = {dump.process.rank: _place(dump) for dump in of_rank(tree.dumps)}
    if not tree.odd.by:
        return _fold("all ranks have the same stacks" + _at(places[tree.odd.groups[0][0]]), 0)
    said = [
        f"rank{'s' if len(group) > 1 else ''} {', '.join(group)}{_at(places[group[0]])}" for group in tree.odd.groups
    ]
    if tree.odd.odd:
        odd = tree.odd.odd
        who = f"ranks {', '.join(odd)} are the odd ones" if len(odd) > 1 else f"rank {odd[0]} is the odd one"
        head = f"{who}, by {tree.odd.by}"
    else:
        head = f"the ranks differ in {tree.odd.by}, with no majority"
    return [*_fold(head, 0), *(part for line in said for part in _fold(line))]


def _at(place: str) -> str:
    return f": {place}" if place else ""


def _place(dump: ProcessDump) -> str:
    """Where the main thread is: its innermost frame outside the standard library and torch, and what it calls."""
    from harness.analysis.odd_rank import main_thread
    from harness.core.stuck.waits import of_library

    main = main_thread(dump.threads)
    if main is None or not main.frames:
        return ""
    own = next((frame for frame in main.frames if not of_library(frame)), main.frames[0])
    inner = main.frames[0]
    text = f"{own.function} ({own.place})"
    return text if inner is own else f"{text}, in {inner.function} ({inner.place})"


_NO_NATIVE = "the catalogue is held against native stacks, and here are no native frames"
_KINDS = {
    "cycle": "deadlock",
    "nobody": "waits for ever",
    "native": "stuck outside Python",
    "busy": "others wait for",
    "gil": "interpreter lock held",
}


def _title(dump: ProcessDump) -> str:
    process = dump.process
    rank = f"rank {process.rank}, " if process.rank else ""
    torch = f"  torch {process.torch}" if process.torch else ""
    return f"process {process.pid} ({rank}{process.command[:100]}){torch}"


def _why_not(dump: ProcessDump) -> str:
    running = [thread.name for thread in dump.threads if thread.still is False or thread.asleep is False]
    return f"; {', '.join(running[:4])} {'go' if len(running) > 1 else 'goes'} on" if running else ""


def _hazard(found: Match) -> list[str]:
    sure = "" if found.certain else ", perhaps"
    lines = _fold(f"hazard {found.hazard.id}{sure}: {found.hazard.title}")
    for role in found.roles:
        lines += _fold(str(role), 4)
    return [*lines, *_fold(f"remedy: {found.hazard.remedy}", 4)]


def _fold(text: str, indent: int = 2) -> list[str]:
    """Lines of 80 columns; names and paths are not broken."""
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _stack(thread: ThreadView) -> list[str]:
    state = "computes" if thread.asleep is False else "went on between two looks" if thread.still is False else "stands still"
    name = thread.name if thread.name.startswith("thread ") else f"thread {thread.name}"
    lines = [f"  {name} ({state}{', holds the interpreter lock' if thread.owns_gil else ''})"]
    lines += [f"      [{name}]" for name in thread.native[:NATIVE]]
    lines += [f"      {frame.function} ({frame.place})" for frame in thread.frames[:FRAMES]]
    more = len(thread.frames) - FRAMES
    return [*lines, f"      … {more} more"] if more > 0 else lines


def process_json(dump: ProcessDump) -> dict[str, Any]:
    """The same, with whole stacks; `harness explain` reads it. `stacks`: as py-spy gives them, native frames in place."""
    names = {thread.ident: thread.name for thread in dump.threads}
    process = dump.process
    return {
        "pid": process.pid,
        "parent": process.parent,
        "command": process.command,
        "rank": process.rank,
        "local_rank": process.local_rank,
        "torch": process.torch,
        "note": dump.note,
        "failed": dump.failed,
        "folder": None if dump.record is None else str(dump.record.folder),
        "watchdog": "" if dump.record is None else dump.record.told,
        "findings": [
            {"kind": f.kind, "text": f.text, "threads": [names.get(i, str(i)) for i in f.threads]}
            for f in dump.diagnosis.findings
        ],
        "hazards": [
            {
                "id": found.hazard.id,
                "title": found.hazard.title,
                "remedy": found.hazard.remedy,
                "certain": found.certain,
                "why": found.why,
                "roles": [
                    {"role": r.role, "thread": r.thread, "doing": r.doing, "at": r.at, "user": r.user} for r in found.roles
                ],
            }
            for found in dump.hazards
        ],
        "waits": [
            {
                "thread": wait.thread.name,
                "ident": wait.thread.ident,
                "kind": wait.kind,
                "what": wait.what,
                "helpers": [{"thread": names.get(i, str(i)), "how": has} for i, has in wait.helpers.items()],
                "nobody": wait.nobody,
                "idle": wait.idle,
                "timed": wait.timed,
            }
            for wait in dump.diagnosis.waits
        ],
        "threads": [
            {
                "name": thread.name,
                "ident": thread.ident,
                "still": thread.still,
                "owns_gil": thread.owns_gil,
                "native": list(thread.native),
                "frames": [{"function": f.function, "file": f.file, "line": f.line} for f in thread.frames],
            }
            for thread in dump.threads
        ],
        "stacks": list(dump.raw),
    }


def tree_json(tree: TreeDump) -> dict[str, Any]:
    """All processes, and the odd rank."""
    odd = tree.odd
    return {
        "pid": tree.launcher.pid,
        "odd": None
        if odd is None
        else {"ranks": list(odd.odd), "groups": [list(group) for group in odd.groups], "by": odd.by},
        "processes": [process_json(dump) for dump in tree.dumps],
    }
