"""What a watch found, in words: lines for the terminal, and sentences for the page."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.control.watch_errors import ENDED
from harness.control.watch_hazards import HAZARD
from harness.core.outcome import FAILURES, OK
from harness.report.facts import no_option
from harness.report.text import one_line
from harness.report.wording import plural

MOST_IN_PARAGRAPH = 6
MOST_FACTS = 3
MOST_EXPLAINED = 3
COLUMNS = 80
MOST_REASONS = 20
LONGEST = 400
LONGEST_HAZARD = 700
LONG_WAIT_S = 0.1
_ENDED_BY = " ended by "
BY_SIGNAL = "the process ended by "
_ENDINGS = (BY_SIGNAL, "Fatal Python error: ")
"""How the reason of a crash begins, and nothing else's."""
_PLACE = re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)
_LIBRARY = re.compile(r"^<|/(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/|/ours/harness/")
GUARDS_HELD = "runtime guards failed even though they passed"
"""Of `torch._dynamo.guards`, torch 2.11 to 2.14: it found no entry with a guard that fails, and asks for a bug report."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """One sentence. `wrong`: something to be mended, else a fact that helps to judge."""

    wrong: bool
    topic: str
    text: str


def told(row: Row) -> list[Told]:
    """All that is to be said of one process, what is wrong first."""
    facts = row.get("facts") or {}
    problems = row.get("problems") or ()
    found = [*_stuck(row, facts), *_collisions(row), *_errors(row), *_dense(row, facts)]
    found += [Told(True, str(one["label"]), str(one["text"])) for one in problems if one["label"] != HAZARD]
    found += [*_settings(facts), *_leaks(row), *_compiles(row, facts), *_waits(row), *_unseen(row, facts)]
    found.sort(key=lambda one: not one.wrong)
    found[:1] = _then_ended(row, found[:1])
    for one in reversed([one for one in problems if one["label"] == HAZARD]):
        of = ("hang", "deadlock") if one.get("of", "hang") == "hang" else (one["of"],)
        last = max((number for number, each in enumerate(found) if each.wrong and each.topic in of), default=-1)
        found.insert(last + 1, Told(True, HAZARD, str(one["text"])))
    return found


def summary(rows: Sequence[Row], notes: Sequence[str], written: str, *, quiet: bool, run: str = "") -> str:
    """What ends a watch, each finding on a line of its own, folded at 80 columns.

    "" when nothing was found and nobody wants to hear that. `run`: the run folder, for commands to copy.
    """
    sentences = [(row, one) for row in rows for one in told(row)]
    found = [(row, one) for row, one in sentences if one.wrong]
    shown = [number for number, (_, one) in enumerate(found) if one.topic != HAZARD]
    end = shown[MOST_IN_PARAGRAPH] if len(shown) > MOST_IN_PARAGRAPH else len(found)
    wrong = [_of(rows, row, one) for row, one in found[:end]]
    if quiet and not wrong and not notes:
        return ""
    said: list[str] = []  # of what nobody looked at nothing can be said, not even that it is well
    if wrong:
        more = len(shown) - MOST_IN_PARAGRAPH
        said = wrong + ([f"and {more} more"] if more > 0 else [])
    elif rows:
        facts = [_of(rows, row, one) for row, one in sentences if one.topic not in ("torch", "region")]
        said = [nothing_seen(rows), *facts[:MOST_FACTS]]
    lines = _lines(f"harness watch: {head(rows)}", "")
    for text in (*said, *(f"Note: {note}" for note in notes)):
        lines += _lines(f"{text.rstrip('.')}.", "  ")
    following = [f"  Next: {command}" for command in explain_commands(rows, run)] if run else []
    # In one piece, however long: they are there to be copied.
    return "\n".join([*lines, f"  Report: {written}", *following])


def nothing_seen(rows: Sequence[Row]) -> str:
    """What is said where nothing was found: of a program that says itself that it failed, no more than that."""
    code = (rows[0].get("exit") or {}).get("status") if rows else None
    if not code:
        return "Nothing wrong was seen"
    return f"{_name(rows)} ended with exit code {code}; nothing of what is watched for was seen"


def explain_commands(rows: Sequence[Row], run: str) -> list[str]:
    """`harness explain RUN/trials/process-N` for processes in which something failed."""
    folders = [f"{no_option(run)}/trials/{row['trial']}" for row in rows if {*FAILURES} & {*row["outcomes"]}]
    return [f"harness explain {shlex.quote(folder)}" for folder in folders[:MOST_EXPLAINED]]


def _name(rows: Sequence[Row]) -> str:
    return str(rows[0]["scenario"]["workload"]).removeprefix("watch:")


def _lines(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=indent, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def head(rows: Sequence[Row]) -> str:
    """`train.py ended after 12.3 s, 1 process, torch 2.13.0.`"""
    if not rows:
        return "nothing was watched."
    lived = max(float(row.get("wall_s") or 0.0) for row in rows)
    torches = sorted({str(row["torch"]) for row in rows if row.get("torch")})
    ended = _ended(rows[0].get("exit") or {})
    return f"{_name(rows)} {ended} after {lived:.1f} s, {_many(len(rows), 'process', 'processes')}, {_torch(torches)}."


def _torch(torches: Sequence[str]) -> str:
    return f"torch {' and '.join(torches)}" if torches else "torch was never imported"


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _ended(exit_: Mapping[str, Any]) -> str:
    if "killed" in str(exit_.get("how")):
        return "was ended for a hang"
    if exit_.get("signal"):
        return f"ended by {exit_['signal']}"
    return "ended" if not exit_.get("status") else f"ended with exit code {exit_['status']}"


def _of(rows: Sequence[Row], row: Row, one: Told) -> str:
    text = one_line(one.text, LONGEST_HAZARD if one.topic == HAZARD else LONGEST)
    return text if len(rows) == 1 else f"{row['trial']}: {text}"


# what is wrong


def _stuck(row: Row, facts: Mapping[str, Any]) -> list[Told]:
    found = []
    for one in facts.get("stuck") or ():
        ended = one.get("ended_s")
        after = f" (it went on after {ended - one['at_s']:.1f} s)" if isinstance(ended, int | float) else ""
        found.append(Told(True, "hang", f"{one['label']} at {one['at_s']:.1f} s: {one['reason']}{after}"))
    reasons = {one["reason"] for one in facts.get("stuck") or ()}
    reason, label = str(row.get("reason") or ""), str(row["outcome"])
    if reason and reason not in reasons and label != OK and not (reason.startswith(_ENDINGS) and _went_later(row)):
        stands = [one for one in ("deadlock", "hang") if one in row["outcomes"]]  # what a reason is about, if it is there
        label = label if label in stands else (stands or [label])[0]
        found.append(Told(True, label, f"{label}: {reason}"))
    return found


def _went_later(row: Row) -> bool:
    """Whether the process crashed after something else that its outcome is named by."""
    return "crash" in row["outcomes"] and row["outcome"] != "crash"


def _then_ended(row: Row, first: Sequence[Told]) -> list[Told]:
    """What is said first, with the crash that followed it; the crash alone where nothing else is wrong."""
    number = (row.get("exit") or {}).get("signal")
    if not number or not _went_later(row):
        return list(first)
    wrong = [one for one in first if one.wrong]
    if not wrong:
        return [Told(True, "crash", f"crash: {BY_SIGNAL}{number}"), *first]
    by_error = wrong[0].topic == "error" and _ENDED_BY in wrong[0].text
    ending = f"; then {BY_SIGNAL}{number}" if by_error else f". The process then ended by {number}"
    return [replace(wrong[0], text=wrong[0].text + ending)]


def _collisions(row: Row) -> list[Told]:
    collided = [error for error in row["errors"] if error["label"] == "fx_error"]
    count = int(row["fx_errors"])
    if not count:
        return []
    first = collided[0] if collided else {}
    step = f", step {first['step']}" if first.get("step") is not None else ""
    who = f"first {first.get('worker')}{_region(first)}{step}"
    others = " and ".join(f"{one['worker'] or one['thread']}{_region(one)}" for one in first.get("tracers") or ())
    while_ = f", while {others} was tracing" if others else ""
    ended = _and(error["worker"] for error in collided if error.get("seen") in ENDED)
    which = f", which ended {ended}" if ended else ""
    text = f"{plural(count, 'compiled call')} refused with the FX-tracing error: {who}{while_}{which}"
    return [Told(True, "fx_error", text)]


def _region(part: Mapping[str, Any]) -> str:
    return f" in {part['region']}" if part.get("region") not in (None, "", "?") else ""


def _errors(row: Row) -> list[Told]:
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for error in row["errors"]:
        if error["label"] != "fx_error" and not error["consequence"]:
            kinds.setdefault(error["fingerprint"], []).append(error)
    found = []
    for errors in kinds.values():
        first = errors[0]
        message = one_line(str(first["message"]), 200).rstrip(".")
        what = f"{first['type']}: {message}" if message else str(first["type"])
        if first["label"] == "error" and all(error.get("seen") in ENDED for error in errors):
            text = f"{_and(error['worker'] for error in errors)}{_ENDED_BY}{what}{_place(first)}"
        else:
            text = f"{first['label']} in {_workers(errors)}: {what}"
        found.append(Told(True, first["label"], text))
    return found


def _and(names: Iterable[str]) -> str:
    """`a`, or `a and b`, each once."""
    return " and ".join(dict.fromkeys(names))


def _place(error: Mapping[str, Any]) -> str:
    """` (train.py:15)`: the innermost line of its traceback that is the program's own; "" without any."""
    own = [found for found in _PLACE.findall(str(error["traceback"])) if not _LIBRARY.search(found[0])]
    return f" ({Path(own[-1][0]).name}:{own[-1][1]})" if own else ""


def _workers(errors: Sequence[Mapping[str, Any]]) -> str:
    """`trainer-0`, `trainer-0 in forward, 2 times`, or `trainer-0 1, trainer-1 1`."""
    counts = Counter(f"{error['worker']}{_region(error)}" for error in errors)
    if len(counts) > 1:
        return ", ".join(f"{name} {count:,}" for name, count in counts.items())
    ((name, count),) = counts.items()
    return f"{name}, {count:,} times" if count > 1 else name


def _dense(row: Row, facts: Mapping[str, Any]) -> list[Told]:
    count = int(row["dense_calls"])
    if not count:
        return []
    by = {name: worker.get("dense_calls", 0) for name, worker in row["workers"].items()}
    by["other threads"] = facts.get("other_dense_calls", 0)
    who = ", ".join(f"{name} {n:,}" for name, n in by.items() if n)
    wrong = "dense" in row["outcomes"]
    return [Told(wrong, "dense", f"{plural(count, 'call')} of flex_attention ran dense, outside compiled code: {who}")]


def _settings(facts: Mapping[str, Any]) -> list[Told]:
    found = []
    for worker, settings in (facts.get("settings") or {}).items():
        said = ", ".join(f"{name} {one['there']} (main thread: {one['here']})" for name, one in settings.items())
        found.append(Told(True, "settings", f"{worker} compiled under other Dynamo settings than the main thread: {said}"))
    return found


def _leaks(row: Row) -> list[Told]:
    by = {name: (worker.get("counts") or {}).get("is_compiling_leaks", 0) for name, worker in row["workers"].items()}
    said = ", ".join(f"{name} {n:,}" for name, n in by.items() if n)
    text = f"torch.compiler.is_compiling() was True in threads that compiled nothing: {said} times"
    return [Told(True, "state_leak", text)] if said else []


# what helps to judge


def _compiles(row: Row, facts: Mapping[str, Any]) -> list[Told]:
    if not row["compiles"]:
        return []
    by = {name: worker.get("compiles", 0) for name, worker in row["workers"].items()}
    by["other threads"] = row["compiles"] - sum(by.values())
    who = ", ".join(f"{name} {n:,}" for name, n in by.items() if n)
    found = [Told(False, "compiles", f"{plural(int(row['compiles']), 'graph')} compiled: {who}")]
    reasons = facts.get("recompiles") or ()
    for one in reasons[:MOST_REASONS]:
        times = f" ({one['count']} times)" if one["count"] > 1 else ""
        text = f"{one['worker']} compiled {one['function']} again{times}: {_reason(one, reasons)}"
        found.append(Told(False, "recompile", text))
    more = len(reasons) - MOST_REASONS + int(facts.get("recompiles_more") or 0)
    if more > 0:
        found.append(Told(False, "recompile", f"{plural(more, 'further reason')} to compile again in result.json"))
    return found


def _reason(one: Mapping[str, Any], reasons: Sequence[Mapping[str, Any]]) -> str:
    """The guard that failed, in torch's words, unless these only say that it found none and took itself to be at fault."""
    if GUARDS_HELD not in str(one["reason"]):
        return str(one["reason"])
    others = list(dict.fromkeys(
        each["worker"] for each in reasons if each["function"] == one["function"] and each["worker"] != one["worker"]
    ))  # fmt: skip
    also = f"; {' and '.join(others)} compiled it again, too" if others else ""
    return (
        "a guard had failed, and all held when torch asked which: another thread changed what they look at meanwhile, or "
        f"models in several threads share this code{also}"
    )


def _waits(row: Row) -> list[Told]:
    found = []
    for name, worker in row["workers"].items():
        sums = (worker.get("facts") or {}).get("sums") or {}
        if sums.get("lock_wait_s", 0.0) >= LONG_WAIT_S:
            text = (
                f"{name} waited {sums['lock_wait_s']:.2f} s for torch's compile lock, {plural(sums['lock_waits'], 'time')}, "
                f"the longest {sums['lock_longest_s']:.2f} s"
            )
            found.append(Told(False, "compile lock", text))
        if sums.get("engine_runs"):
            text = (
                f"{name} was {sums['engine_s']:.2f} s in the autograd engine, {plural(sums['engine_runs'], 'run')}, "
                f"the longest {sums['engine_longest_s']:.3f} s"
            )
            found.append(Told(False, "engine", text))
        for region, (times, total, longest) in (sums.get("regions") or {}).items():
            text = f"{name}: region {region} {times:,} times, {total / 1e9:.2f} s, the longest {longest / 1e9:.3f} s"
            found.append(Told(False, "region", text))
    return found


def _unseen(row: Row, facts: Mapping[str, Any]) -> list[Told]:
    """What may have happened unseen, and what of the events is not there."""
    found = [
        Told(False, "probes", f"{probe}: {state}")
        for probe, state in row["probes"].items()
        if state.startswith("unavailable")
    ]
    if facts.get("torch_imported") and "flag_check" not in row["probes"]:
        why = row["probes"].get("torch", "it was imported in a way that the watch did not see")
        found.append(Told(True, "probes", f"torch was not watched: {why}"))
    if facts and not facts.get("torch_imported"):
        found.append(Told(False, "torch", "torch was never imported in this process"))
    events = facts.get("events") or {}
    if events.get("written_over"):
        text = (
            f"the events are bounded to {events['limit_bytes'] >> 20} MiB: of the chunks without anything unusual one in "
            f"{events['one_in']} was kept, {events['written_over']:,} events of warm steps were not; counts are complete"
        )
        found.append(Told(False, "events", text))
    if events.get("windows_lost"):
        found.append(Told(False, "events", f"{plural(events['windows_lost'], 'unusual window')} found no place"))
    if events.get("dropped"):
        text = f"{sum(events['dropped'].values()):,} events found no place: too many threads at a time, or a full disk"
        found.append(Told(False, "events", text))
    if facts.get("children_unseen"):
        text = f"it forked {_many(facts['children_unseen'], 'child', 'children')}; --follow watches them, too"
        found.append(Told(False, "children", text))
    return found
