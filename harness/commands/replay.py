"""`harness replay`: a recorded trial again, in the same order of sync points."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace as with_fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands.options import Python, Quiet

if TYPE_CHECKING:
    from harness.control.request import Executor, OnStart, Row, TrialRequest


def replay(
    trial: Annotated[Path, typer.Argument(metavar="TRIAL_DIR", help="A trial's folder, below trials/ of a run.")],
    python: Python = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replay a recording of another torch or harness version.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1.0, metavar="S", help="Seconds a trial may take.")] = 300.0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the trial lands.  [default: reports/replay-<UTC time>]", show_default=False),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a trial again in the order that was recorded, and say whether order and outcome are the same.

    Exit codes: 0 both are, 1 one is not (the first differing event is printed), 2 bad input.
    """
    from harness.commands.output import emit
    from harness.control.caches import PrimedExecutor
    from harness.control.cases import trials_folder
    from harness.control.executors import make_executor
    from harness.control.find_trial import find_trial
    from harness.control.interpreter import describe_python, find_python
    from harness.control.replay import read_trial
    from harness.control.replay import replay as run_again
    from harness.core.outcome import is_failure, primary
    from harness.core.recording import check_same
    from harness.report.next_step import next_commands, next_lines

    old = read_trial(find_trial(trial))
    program = find_python(python)
    torch = str(describe_python(program)["torch"])
    note = check_same(old.recording, torch, force=force)
    folder = trials_folder(out, "replay")
    executor = _Told(
        PrimedExecutor(make_executor("local", python=program), folder),
        timeout,
        lambda text: None if quiet else typer.echo(text, err=True),
    )
    try:
        found = run_again(old, executor, folder / "trials" / "001-replay", note=note)
    finally:
        executor.close()
    lost = is_failure(primary(old.outcomes)) and not found.same_outcome  # by chance, so its hazard's own plan may do more
    if json_output:
        document = {**found.to_json(), "next": next_commands(old.folder) if lost else []}
        emit(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        if found.note:
            emit(f"forced: {found.note}\n")
        events = len(old.recording.events)
        emit(f"order: same, {events} events\n" if found.same_order else f"order: differs at {found.difference}\n")
        if found.repairs:
            where = ", ".join(str(index + 1) for index in found.late)
            emit(f"it took {found.repairs + 1} replays: the others diverged, and threads were made late at event {where}\n")
        now, then = ", ".join(found.row["outcomes"]), ", ".join(old.outcomes)
        emit(f"outcome: {now}, as recorded\n" if found.same_outcome else f"outcome: {now}; recorded {then}\n")
        if lost:
            emit(next_lines(old.folder))
    raise typer.Exit(found.exit_code)


class _Told:
    """An executor that gives each trial so many seconds and says how it ended."""

    def __init__(self, executor: Executor, timeout_s: float, note: Callable[[str], None]) -> None:
        self._executor, self._timeout_s, self._note = executor, timeout_s, note

    def run(
        self,
        trials: Sequence[TrialRequest],
        on_start: OnStart,
        on_row: Callable[[Row], None],
    ) -> None:
        """As the executor does."""

        def ended(row: Row) -> None:
            self._note(f"{row['trial']}: {', '.join(row['outcomes'])}")
            on_row(row)

        self._executor.run([with_fields(trial, timeout_s=self._timeout_s) for trial in trials], on_start, ended)

    def close(self) -> None:
        """As the executor does."""
        self._executor.close()
