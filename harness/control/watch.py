"""One watch: start the program, look at it while it runs, and put down what was seen."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from harness.core.errors import RunFolderError, UserError
from harness.core.outcome import OK

from .request import Row
from .rundir import RunFolder, default_folder, dump_environment, is_run_folder, open_run, point_latest
from .watch_command import Command, read_command
from .watch_hangs import Hang, HangWatch
from .watch_program import Program
from .watch_rows import Process, process_row, processes, signals, wait_for_last_words
from .watch_start import Start

LOOK_S = 0.5
HANG_TIMEOUT_S = 30.0
"""Unless it is given."""
FACTS_S = 25.0


class Display(Protocol):
    """Something that shows a watch as it goes."""

    def show(self, watched: Sequence[Process]) -> None:
        """Called twice a second."""

    def close(self) -> None:
        """Leave the terminal as it was."""


@dataclass(frozen=True)
class WatchOptions:
    """As on the command line. `follow`: None where the command itself decides."""

    words: Sequence[str]
    out: Path | None
    follow: bool | None
    hang_timeout_s: float
    kill: bool
    live: bool

    def typed(self) -> list[str]:
        """Those that are not the default, as words of a command line."""
        words = [] if self.out is None else ["--out", str(self.out)]
        if self.follow is not None:
            words.append("--follow" if self.follow else "--no-follow")
        if self.hang_timeout_s != HANG_TIMEOUT_S:
            words += ["--hang-timeout", f"{self.hang_timeout_s:g}"]
        words += ["--on-hang", "kill"] * self.kill
        return words + ["--live"] * self.live


@dataclass
class WatchResult:
    """What came of it. `pid`, `status`, `lived_s`: the program's, with its wait status and its seconds."""

    run_dir: Path
    pid: int
    status: int
    lived_s: float
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    hangs: dict[str, Hang] = field(default_factory=dict)
    killed: bool = False


def watch(options: WatchOptions, display: Display, say: Callable[[str], None]) -> WatchResult:
    """Run the program of `options.words` to its end. Raises UserError before it has started, and never after."""
    command = read_command(options.words)
    path = options.out or default_folder("watch-" + Path(command.name).stem)
    if is_run_folder(path):
        raise RunFolderError(f"{path} already holds a run: choose another folder with --out")
    follow = command.launcher if options.follow is None else options.follow
    before = {entry.name for entry in path.iterdir()} if path.is_dir() else None
    with open_run(path, resume=False) as folder:
        try:
            start = Start(path, follow=follow, hang_timeout_s=options.hang_timeout_s, live=options.live)
        except OSError as error:
            _undo(path, before)
            raise UserError(f"no room for what starts a watch: {error}; set TMPDIR to another folder") from error
        begun = datetime.now(UTC)
        try:
            try:
                program = Program(command.words, start.environment())
            except BaseException:
                _undo(path, before)  # nothing ran, so there is nothing to keep
                raise
            result = _attend(program, folder, options, display, say)
            result.notes += _notes(start, result)
        finally:
            start.remove()
            display.close()
        _put_down(folder, command, options, result, begun)
    if any(map(_worth_a_look, result.rows)) and (note := point_latest(path)):
        result.notes.append(note)
    return result


def _worth_a_look(row: Row) -> bool:
    """Whether torch was there, or something was seen: else `reports/latest` stays with what is more to be asked about."""
    imported = bool((row.get("facts") or {}).get("torch_imported"))
    return imported or row["outcome"] != OK or bool(row["errors"] or row.get("problems"))


def _undo(path: Path, before: set[str] | None) -> None:
    """Remove what the watch put into a folder that held `before`; the whole folder where there was none."""
    if before is None:
        shutil.rmtree(path, ignore_errors=True)
        return
    for entry in list(path.iterdir()):
        if entry.name in before:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _attend(
    program: Program, folder: RunFolder, options: WatchOptions, display: Display, say: Callable[[str], None]
) -> WatchResult:
    """Until the program has ended."""
    hangs = HangWatch(program, options.hang_timeout_s, kill=options.kill, say=say)
    failed: list[str] = []

    def look() -> None:
        if failed:
            return
        try:
            watched = list(processes(folder.path))
            display.show(watched)
            hangs.look(watched)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not part the program from its terminal
            failed.append(f"the watch itself failed and looked no further: {type(error).__name__}: {error}")

    status = program.wait(LOOK_S, look)
    wait_for_last_words(folder.path)
    return WatchResult(
        folder.path,
        program.pid,
        status,
        program.lived_s,
        notes=failed,
        hangs=hangs.found,
        killed=program.stopped_by_us,
    )


def _put_down(
    folder: RunFolder, command: Command, options: WatchOptions, result: WatchResult, begun: datetime
) -> None:
    """environment.json and a row for each process; a disk that refuses costs a note, not the program's exit code."""
    try:
        found = list(processes(folder.path))
        environment = _facts(command, options)
        if found:
            environment.update(executable=found[0].executable, python=found[0].python)
        signalled = signals(found)
        last = {process.pid: process.folder for process in found}  # a program that replaced itself has several
        for process in found:
            first = process.pid == result.pid and process.folder == last[process.pid]
            hang = result.hangs.get(process.folder.name, Hang())
            row = process_row(
                process,
                program=command.name,
                status=result.status if first else None,
                lived_s=result.lived_s if first else None,
                killed=result.killed,
                signalled=signalled.get(process.pid, ""),
                outside=hang.outside,
                hazards=hang.hazards,
            )
            result.rows.append(row)
        folder.open_results(result.notes.append)
        for row in result.rows:
            folder.append(row)
        if result.rows:
            environment["torch"] = next((row["torch"] for row in result.rows if row["torch"]), None)
        environment["kind"] = "watch"
        environment["created"] = begun.strftime("%Y-%m-%dT%H:%M:%SZ")
        environment["options"] = {
            "matrix": f"watch of {command.name}",
            "program": command.shown(),
            "hang_timeout_s": options.hang_timeout_s,
        }
        folder.write("environment.json", dump_environment(environment))
    except RunFolderError as error:
        result.notes.append(str(error))
    except OSError as error:
        result.notes.append(f"what was seen could not be put down: {error}")


def _facts(command: Command, options: WatchOptions) -> dict[str, Any]:
    """Facts of the machine, unless a driver keeps us waiting."""
    from .environment import describe_environment  # not before the program has run

    answer: list[dict[str, Any]] = []

    def ask() -> None:
        answer.append(describe_environment(sys.executable, ["watch", *options.typed(), "--", *command.shown()]))

    asking = threading.Thread(target=ask, name="harness-facts", daemon=True)
    asking.start()
    asking.join(FACTS_S)
    return answer[0] if answer else {}


def _notes(start: Start, result: WatchResult) -> list[str]:
    notes = []
    if said := start.notes():
        notes.append(f"not watched: {said.splitlines()[-1]}")
    elif not any(processes(result.run_dir)):
        notes.append("no Python process took the watch: the program starts none, or one that ignores PYTHONPATH")
    return notes
