"""`harness dump`: why a process, or one of many below a launcher, does not go on, seen from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from harness.analysis.dump_stacks import from_pyspy_json
from harness.analysis.dump_values import Dump, waiting_for_locks
from harness.analysis.explain import Match, match
from harness.analysis.odd_rank import Odd, odd_ranks
from harness.control.process_memory import open_memory
from harness.control.process_record import Record, read_record
from harness.control.process_stacks import NoStacks, Run, Stacks, reader, take
from harness.control.processes import Process, below, find, python_below
from harness.core.errors import UserError
from harness.core.stuck.diagnose import diagnose
from harness.core.stuck.reasons import UNKNOWN_HOLDER
from harness.core.stuck.views import Diagnosis, ThreadView
from harness.core.waitgraph import Edge

NOTHING = Diagnosis((), ())


@dataclass(frozen=True)
class ProcessDump:
    """One process.

    raw     its stacks as py-spy gave them, one mapping a thread, with native frames
    note    what could not be read, and why
    failed  it has no stacks at all, for that reason
    """

    process: Process
    threads: tuple[ThreadView, ...] = ()
    diagnosis: Diagnosis = NOTHING
    hazards: tuple[Match, ...] = ()
    record: Record | None = None
    note: str = ""
    failed: bool = False
    raw: tuple[Mapping[str, Any], ...] = ()

    @property
    def explained(self) -> bool:
        """A culprit or a hazard is named."""
        return bool(self.diagnosis.findings or self.hazards)


@dataclass(frozen=True)
class TreeDump:
    """All Python processes below a launcher. `odd`: among those with a rank; None with fewer than two."""

    launcher: Process
    dumps: tuple[ProcessDump, ...]
    odd: Odd | None

    @property
    def explained(self) -> bool:
        """Something is named in one of them, or a rank is odd."""
        return any(dump.explained for dump in self.dumps) or bool(self.odd and self.odd.odd)


def dump_process(
    pid: int, *, native: bool, timeout_s: float, run: Run | None = None, hung: bool = False
) -> ProcessDump:
    """One process. `hung`: as for `dump_found`. Raises UserError when it cannot be read."""
    process = find(pid)
    found = dump_found(process, native=native, timeout_s=timeout_s, run=run, hung=hung)
    if found.failed:
        hint = "" if process.python else python_below(pid)
        raise UserError(f"process {pid} ({process.command[:80]}): {found.note}{hint and f'; {hint}'}")
    return found


def dump_tree(pid: int, *, native: bool, timeout_s: float, run: Run | None = None) -> TreeDump:
    """A process and all Python processes below it. Raises UserError when none of them can be read."""
    launcher = find(pid)
    python = [process for process in below(pid) if process.python]
    if not python:
        raise UserError(f"process {pid} ({launcher.command[:80]}) and those below it are no Python processes")
    dumps = tuple(dump_found(process, native=native, timeout_s=timeout_s, run=run) for process in python)
    if all(dump.failed for dump in dumps):
        raise UserError(f"process {pid} and those below it: {dumps[0].note}")
    ranks = {dump.process.rank: dump.threads for dump in of_rank(dumps)}
    return TreeDump(launcher, dumps, odd_ranks(ranks) if len(ranks) > 1 else None)


def of_rank(dumps: Iterable[ProcessDump]) -> list[ProcessDump]:
    """The topmost process of each rank, in order of rank: a loader's workers have inherited theirs."""
    first: dict[str, ProcessDump] = {}
    for dump in dumps:
        if dump.process.rank and not dump.failed:
            first.setdefault(dump.process.rank, dump)
    return [first[rank] for rank in sorted(first, key=lambda rank: (len(rank), rank))]


def dump_found(
    process: Process, *, native: bool, timeout_s: float, run: Run | None = None, hung: bool = False
) -> ProcessDump:
    """One process that is there; a failure is told, not raised. `hung`: it is known to hang, and not merely to work."""
    pid = process.pid
    with open_memory(pid) or nullcontext() as memory:
        try:
            record = read_record(pid)
            stopped = process.state in ("T", "t")
            stacks = take(pid, native=native, timeout_s=timeout_s, stopped=stopped, memory=memory, run=run)
        except NoStacks as error:
            return ProcessDump(process, note=str(error), failed=True)
        return _explained(process, record, stacks, hung)


def _explained(process: Process, record: Record | None, stacks: Stacks, hung: bool) -> ProcessDump:
    threads = stacks.threads
    edges: list[Edge] = []
    if record is not None:
        threads = tuple(replace(thread, name=record.threads.get(thread.ident, thread.name)) for thread in threads)
        names = {thread.ident: thread.name for thread in threads}
        edges = [Edge(names[a], what, names[b]) for a, what, b in record.edges if a in names and b in names]
    diagnosis = diagnose(threads, reader(process.pid), edges, hung=hung)
    locked = {wait.thread.ident for wait in diagnosis.waits if wait.kind in ("lock", UNKNOWN_HOLDER)}
    hazards = match(Dump(waiting_for_locks(from_pyspy_json(stacks.raw), locked)), torch=process.torch)
    note = _note(process, stacks.note)
    return ProcessDump(process, threads, diagnosis, tuple(hazards), record, note, raw=tuple(stacks.raw))


def _note(process: Process, note: str) -> str:
    stopped = "it is stopped, by a signal or a debugger: kill -CONT lets it go on" if process.state in ("T", "t") else ""
    return "; ".join(part for part in (stopped, note) if part)

