"""What a display says of references, of trials that wait for theirs, and of the time that is left."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fake_runs import row
from rich.console import Console

from harness.control.request import Row
from harness.core.scenario import Scenario
from harness.report.left_guess import LeftGuess
from harness.report.progress import LiveProgress, PlainProgress, Progress


class Starts:
    """A request, as far as a display reads it."""

    def __init__(self, trial_id: str, scenario: Scenario) -> None:
        self.trial_id = trial_id
        self.scenario = scenario


LONG = Scenario(lock="compile_gate", checkpoint="non_reentrant", shapes="per_drafter", warmup="per_device", drafters=3)
REFERENCE = Starts("reference-0123456789abcdef", Scenario(checkpoint="non_reentrant", shapes="per_drafter", steps=12))


def begin(progress: Progress) -> None:
    """One of three trials has ended with an FX error and waits; its reference runs, and a second trial."""
    progress.begin(3, 0)
    progress.references(1)
    progress.started(Starts(f"{LONG.id}--r0", LONG))
    progress.reference_started(REFERENCE)
    progress.waits(row(LONG, 0, "fx_error"))
    progress.started(Starts(f"{LONG.id}--r1", LONG))


def reference_row(*outcomes: str) -> Row:
    return {**row(REFERENCE.scenario, 0, *outcomes), "trial": REFERENCE.trial_id}


def test_a_trial_that_waits_is_done_and_counted_once() -> None:
    progress = Progress()
    begin(progress)
    assert (progress.done, progress.failed, list(progress.running)) == (1, 1, [f"{LONG.id}--r1"])
    progress.ended(row(LONG, 0, "fx_error", "numerics"))
    assert (progress.done, progress.failed, progress.waiting) == (1, 1, {})


def test_a_failure_that_only_the_reference_shows_is_counted() -> None:
    progress = Progress()
    progress.begin(1, 0)
    progress.waits(row(LONG, 0))
    assert progress.failed == 0
    progress.ended(row(LONG, 0, "numerics"))
    assert (progress.done, progress.failed) == (1, 1)


@contextmanager
def live() -> Iterator[tuple[LiveProgress, io.StringIO]]:
    """A terminal of 80 columns."""
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None, height=20)
    with LiveProgress(console, "scenarios/quick.toml") as progress:
        yield progress, file


def test_a_terminal_shows_the_references_that_run_and_who_waits() -> None:
    with live() as (progress, _):
        begin(progress)
        text = io.StringIO()
        Console(file=text, width=80).print(progress.render())
        progress.waiting.clear()
    assert "1 trial has ended and waits for a reference\n" in text.getvalue().replace("  ", "")
    assert "reference of checkpoint=non_reentrant,shapes=per_drafter,steps=12\n" in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 80


def test_a_log_tells_of_a_failure_when_it_is_there_and_again_only_if_more_is_known() -> None:
    stream = io.StringIO()
    log = PlainProgress(stream)
    begin(log)
    assert stream.getvalue().count("fx_error ") == 1
    log.ended(row(LONG, 0, "fx_error"))
    assert stream.getvalue().count("fx_error ") == 1
    log.waits(row(LONG, 1))
    log.ended(row(LONG, 1, "numerics"))
    assert stream.getvalue().count("numerics ") == 1


def test_a_failure_is_not_told_again_in_the_same_words() -> None:
    """A label more that no line shows; a reason that was not there is more."""
    stream = io.StringIO()
    log = PlainProgress(stream)
    log.begin(2, 0)
    for repeat, reason in enumerate(("graph broke", "")):
        log.waits(row(LONG, repeat, "fx_error", reason=reason))
        log.ended(row(LONG, repeat, "fx_error", "numerics", reason=reason or "drafter-0, step 1: loss 9"))
    assert [line.split()[0] for line in stream.getvalue().splitlines()[1:]] == [
        *("fx_error", "graph"), *("fx_error", "fx_error", "drafter-0,"),
    ]  # fmt: skip
    with live() as (progress, file):
        progress.begin(1, 0)
        progress.waits(row(LONG, 0, "fx_error"))
        progress.ended(row(LONG, 0, "fx_error", "numerics"))
        shown = file.getvalue()
    assert shown.count("fx_error ") == 1


def test_a_workload_without_a_reference_is_one_note_and_no_failed_step() -> None:
    why = 'workload "my.module:Mine" has no serial reference'
    stream = io.StringIO()
    log = PlainProgress(stream)
    for number in range(2):
        request = Starts(f"reference-{number}", LONG)
        log.reference_started(request)
        log.reference_ended({**row(LONG, 0, "skipped", reason=why), "trial": request.trial_id})
    assert stream.getvalue() == f"note: losses are not checked: {why}\n"


def test_a_log_of_every_trial_has_the_references_in_80_columns() -> None:
    stream = io.StringIO()
    log = PlainProgress(stream, every=True)
    begin(log)
    log.reference_started(Starts("reference-1", LONG))
    assert "start reference of checkpoint=non_reentrant,shapes=per_drafter,steps=12\n" in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) == 80


@pytest.mark.parametrize(("outcome", "said"), [("hang", True), ("ok", False), ("interrupted", False)])
def test_a_reference_that_fails_is_told_of(outcome: str, said: bool) -> None:
    stream = io.StringIO()
    log = PlainProgress(stream)
    begin(log)
    log.reference_ended(reference_row(outcome))
    assert (f"{outcome} {REFERENCE.trial_id} 2.0 s\n" in stream.getvalue()) is said


def test_trials_whose_reference_did_not_come_are_said_to_be_kept() -> None:
    stream = io.StringIO()
    with PlainProgress(stream) as log:
        begin(log)
        log.waits(row(LONG, 1))
    said = [
        "note: 2 trials have ended and wait for a reference: --resume judges them",
        "  seen so far: 1 × fx_error, 1 × ok",
    ]
    assert stream.getvalue().splitlines()[-2:] == said
    with live() as (progress, file):
        begin(progress)
        progress.waits(row(LONG, 1))
    assert "\n".join(said) in "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def test_nothing_is_said_to_be_kept_when_all_is_judged() -> None:
    stream = io.StringIO()
    with PlainProgress(stream) as log:
        begin(log)
        log.ended(row(LONG, 0, "fx_error"))
    assert "--resume" not in stream.getvalue()


def test_a_slow_reference_does_not_make_the_trials_that_are_left_slow() -> None:
    """At one job: a trial of 10 s, then a reference of 300 s; 59 more trials take 590 s, not five hours."""
    left = LeftGuess()
    left.references = 1
    left.at_once(1)
    left.trial_took(10)
    assert left.seconds(59, [], []) == 60 * 10, "the reference is taken for a trial until more is known"
    assert left.seconds(59, [], [300]) == 59 * 10
    left.reference_took(300)
    assert left.seconds(59, [], []) == 59 * 10


def test_references_that_are_to_come_count_as_those_that_came() -> None:
    left = LeftGuess()
    left.references = 3
    left.at_once(2)
    left.trial_took(10)
    left.reference_took(100)
    assert left.seconds(4, [5], [40]) == (4 * 10 - 5 + 2 * 100 - 40) / 2


def test_there_is_no_guess_before_a_trial_has_ended_nor_when_all_has() -> None:
    left = LeftGuess()
    left.references = 1
    left.reference_took(100)
    assert left.seconds(5, [], []) is None
    left.trial_took(10)
    assert left.seconds(0, [], []) is None
    assert left.seconds(0, [], [20]) == 80, "the row of a trial that has ended waits for it"
