"""The processes of a watch → rows of `results.jsonl`, from what each wrote and how the program ended."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.outcome import INCOMPLETE, OK, primary
from harness.core.scenario import Scenario

from .evidence import STACKS
from .processes import state_of
from .request import Row, TrialRequest
from .rows import Ending, last_events, trial_row
from .rundir import TRIALS
from .watch_errors import complete
from .watch_hazards import HAZARD, named

PROCESS = "process.json"
HANG = "hang.json"
UNWRITTEN = "unwritten.txt"
FATAL = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
NOBODY_READS = "SIGPIPE"
"""A program whose output goes to `head` ends by it, and nothing is wrong."""
LAST_WORDS_S = 2.0

_FATAL = re.compile(r"Fatal Python error: (.+)")
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",  # until Python 3.12
}
"""What `faulthandler` calls a fatal signal."""


@dataclass(frozen=True)
class Process:
    """A process that was watched: its folder, and what it said of itself when it began."""

    folder: Path
    pid: int
    parent: int
    program: str
    rank: str
    executable: str
    python: str
    began: float  # by the wall clock

    def beat(self) -> float | None:
        """When its watchdog last looked, by the wall clock; None when the folder has gone."""
        try:
            return (self.folder / PROCESS).stat().st_mtime
        except FileNotFoundError:
            return None

    def result(self) -> dict[str, Any] | None:
        """Its account so far; None where it has not written any."""
        return _read(self.folder / "result.json")

    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return state_of(self.pid) not in ("", "Z", "X")

    def stopped(self) -> bool:
        """Whether it is halted as a whole: by a signal, such as that of Ctrl-Z, or a debugger."""
        return state_of(self.pid) in ("T", "t")


def processes(run: Path) -> Iterator[Process]:
    """Those that have begun, in the order in which they began."""
    found = []
    try:
        folders = list(os.scandir(run / TRIALS))
    except FileNotFoundError:
        return
    for entry in folders:
        said = _read(Path(entry.path) / PROCESS)
        if said is not None:
            found.append(
                Process(
                    Path(entry.path),
                    int(said["pid"]),
                    int(said["parent"]),
                    str(said["program"]),
                    str(said["rank"]),
                    str(said["executable"]),
                    str(said["python"]),
                    float(said["began"]),
                )
            )
    yield from sorted(found, key=lambda process: process.began)


def wait_for_last_words(run: Path, seconds: float = LAST_WORDS_S) -> None:
    """Children that were followed may end a moment after the program."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(process.alive() and not (process.result() or {}).get("final") for process in processes(run)):
            return
        time.sleep(0.05)


def signals(found: Sequence[Process]) -> dict[int, str]:
    """Signals that watched processes say to have sent to children of theirs, by the child's number."""
    sent: dict[int, str] = {}
    for process in found:
        said = (process.result() or {}).get("facts", {}).get("signalled", {})
        sent.update((int(pid), str(name)) for pid, name in said.items())
    return sent


def scenario_of(program: str) -> Scenario:
    """The scenario under which a watched program is counted: its name, and nothing else is known of it."""
    shown = "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in program).strip()
    return Scenario(workload=f"watch:{shown or 'program'}")


def process_row(
    process: Process,
    *,
    program: str,
    status: int | None,
    killed: bool,
    lived_s: float | None = None,
    signalled: str = "",
    outside: str = "",
    hazards: Sequence[str] = (),
) -> Row:
    """The row of one process.

    status   its wait status, where it is known; lived_s: likewise, else as of its last account
    killed   by the watch, for a hang
    signalled  the signal that its parent, a program with workers, says to have sent it; "" for none
    outside  why it hangs, where only the watch could see that; hazards: of the catalogue, that its stacks fit
    """
    request = TrialRequest(process.folder.name, scenario_of(program), 0, process.folder)
    said = process.result() or {}
    lived = float(said.get("facts", {}).get("lived_s", 0.0)) if lived_s is None else lived_s
    how = "hang" if killed else "exited"
    row = trial_row(request, Ending(status, how, lived, 0.0))
    row["exit"] = {**row["exit"], "how": _how(said, status, killed, process)}
    labels = [label for label in said.get("outcomes", []) if label != OK]
    unsaid = complete(row, process.folder, final=bool(said.get("final")))
    labels += [label for label in dict.fromkeys(unsaid) if label not in labels]
    reason = row["reason"] if said else ""
    signal_name = row["exit"]["signal"]
    if outside and not said.get("final"):
        labels.append("hang")
        reason = outside
    fatal = _fatal_error(process.folder) if status is None and not process.alive() else ""
    if fatal:
        labels.append("crash")
        reason = reason or fatal
        number = _SIGNALS.get(fatal.partition(": ")[2])
        row["exit"] = {"status": None, "signal": number, "how": f"ended by {number or 'a fatal error'}"}
    elif killed:
        labels = labels or ["interrupted"]
        reason = reason or "ended, since another process of the program hung"
    elif signal_name in FATAL:
        labels.append("crash")
        reason = reason or f"the process ended by {signal_name}"
    elif signal_name and signal_name != NOBODY_READS and not labels:
        labels.append("interrupted")
        reason = f"the process ended by {signal_name}"
        if signal_name == "SIGKILL":
            reason += ", which the system's out-of-memory killer sends, too"
    elif signalled and status is None and not said.get("final") and not process.alive():
        row["exit"] = {"status": None, "signal": signalled, "how": f"ended by {signalled}, from its parent"}
    elif status is None and not said.get("final") and not process.alive() and not labels:
        labels.append("interrupted")
        reason = "the process ended without a word: by a signal, or by native code"
    row["outcomes"] = labels or [OK]
    row["outcome"] = primary(row["outcomes"])
    row["reason"] = reason
    row["problems"] = [*row.get("problems", []), *({"label": HAZARD, "text": text, "of": "hang"} for text in hazards)]
    row["problems"] += [vars(one) for one in named(row)]
    if (process.folder / UNWRITTEN).exists():
        row["problems"].append({"label": "watch", "text": f"its account could not be written: see {UNWRITTEN}"})
    if row["outcome"] not in (OK, *INCOMPLETE) or "hang" in labels or "deadlock" in labels:
        row["last_events"] = last_events(process.folder)
    return row


def _how(said: dict[str, Any], status: int | None, killed: bool, process: Process) -> str:
    if killed:
        return "killed after a hang"
    if status is None and not said.get("final"):
        return "still running when the program ended" if process.alive() else "ended without a word"
    how = str(said.get("how", "exited"))
    return how if how != "running" else "exited"


def _fatal_error(folder: Path) -> str:
    """`Fatal Python error: Segmentation fault`, where the process has put its stacks down for that; else ""."""
    try:
        with open(folder / STACKS, encoding="utf-8", errors="replace") as file:
            return next((line.rstrip() for line in file if _FATAL.match(line)), "")
    except FileNotFoundError:
        return ""


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # half of it was written: the next look finds it whole
        return None
    return found if isinstance(found, dict) else None
