"""References run beside the trials: what starts when, when a row is written, and that none is lost or written twice.

The executor (`places`) has no processes, and which of those that run ends next is each test's choice, so the orders that
matter come about every time.
"""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_runs import make_row, matrix
from places import ONE, Killed, Places, ends_ok, go, is_reference, lines, loses, oldest, references_last

from harness.control import rundir
from harness.control.caches import WarmCaches
from harness.control.recovery import ASIDE
from harness.control.references import References
from harness.control.request import Row, TrialRequest
from harness.control.rundir import RunFolder
from harness.control.runner import make_plan
from harness.control.shared import SharedReferences
from harness.report.progress import Progress

TWO = 'schema = 1\n[defaults]\nrepeats = 2\n[axes]\nlock = ["none", "first_step"]\ncheckpoint = ["none", "reentrant"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with rundir.open_run(tmp_path / "run", resume=False) as opened:
        opened.open_results(lambda note: None)
        yield opened


def numerics(folder: RunFolder) -> dict[str, str]:
    found = lines(folder)
    assert len({row["trial"] for row in found}) == len(found), "a row is written once"
    return {row["trial"]: row["oracles"].get("numerics", "not judged") for row in found}


TRIALS = ["default--r0", "default--r1", "default--r2"]


def test_trials_start_and_end_while_a_slow_reference_runs(folder: RunFolder) -> None:
    at_its_end: list[int] = []

    def pick(running: list[TrialRequest]) -> TrialRequest:
        chosen = references_last(running)
        if is_reference(chosen):
            at_its_end.append(len(lines(folder)))
        return chosen

    executor = Places(2, pick)
    assert not go(folder, executor)
    assert executor.began[0] == TRIALS[0]
    assert executor.began[1].startswith("reference-")
    assert executor.ended[:3] == TRIALS, "all of them, before the reference"
    assert at_its_end == [0], "no row that could not be judged"
    assert numerics(folder) == dict.fromkeys(TRIALS, "ok")


def test_a_reference_takes_a_place_as_a_trial_does(folder: RunFolder) -> None:
    most = 0

    def pick(running: list[TrialRequest]) -> TrialRequest:
        nonlocal most
        most = max(most, len(running))
        return oldest(running)

    executor = Places(2, pick)
    go(folder, executor, TWO)
    assert len(executor.calls) == 1, "by one executor, in one go"
    assert most == 2


def test_each_reference_stands_behind_the_first_trial_that_needs_it(folder: RunFolder) -> None:
    executor = Places(1, oldest)
    go(folder, executor, TWO)
    (order,) = executor.calls
    assert [is_reference(request) for request in order] == [False, True, False, True, *[False] * 6]
    keys = [References(folder.path, "float32").key_of(request) for request in order]
    assert keys[:4] == [keys[0], keys[0], keys[2], keys[2]]


def test_before_a_measurement_the_references_are_made_and_are_counted_as_any(folder: RunFolder) -> None:
    listener = Progress()
    executor = Places(2, oldest)
    go(folder, executor, TWO, listener=listener, references_first=True)
    assert [{is_reference(request) for request in call} for call in executor.calls] == [{True}, {False}]
    assert set(numerics(folder).values()) == {"ok"}
    assert not listener.running_references
    assert listener._left.references == 0


def test_with_one_job_a_failure_is_told_of_before_the_reference_begins(folder: RunFolder) -> None:
    told: list[tuple[str, int]] = []

    class Listening(Progress):
        def waits(self, row: Row) -> None:  # type: ignore[override]
            super().waits(row)
            told.append((row["outcome"], len(executor.began)))

    executor = Places(1, oldest, lambda request: make_row(request, "fx_error", workers=loses(5.0)))
    go(folder, executor, listener=Listening())
    assert told == [("fx_error", 1)]


def test_a_row_that_needs_no_reference_is_written_at_once(folder: RunFolder) -> None:
    def outcome(request: TrialRequest) -> Row:
        if is_reference(request):
            assert [row["outcome"] for row in lines(folder)] == ["setup_error", "crash"]
            return ends_ok(request)
        label = {0: "setup_error", 1: "crash", 2: "ok"}[request.repeat]
        return make_row(request, label, workers=loses(5.0, 4.0) if label == "ok" else {})

    assert not go(folder, Places(2, references_last, outcome))
    assert numerics(folder) == dict(zip(TRIALS, ["not judged", "not judged", "ok"], strict=True))


def out_of_memory_but(good: set[int]) -> Callable[[TrialRequest], Row]:
    def outcome(request: TrialRequest) -> Row:
        if is_reference(request) or request.repeat in good:
            return ends_ok(request)
        return make_row(request, "out_of_memory", workers=loses(5.0))

    return outcome


@pytest.mark.parametrize(("good", "made"), [(set(), 0), ({2}, 1), ({0}, 1)])
def test_no_reference_is_made_that_nothing_can_be_held_against(folder: RunFolder, good: set[int], made: int) -> None:
    """At real size one takes a minute and more of a GPU, as long as a trial."""
    counted: list[int] = []

    class Listening(Progress):
        def references(self, count: int) -> None:
            super().references(count)
            counted.append(count)

    executor = Places(1, oldest, out_of_memory_but(good))
    shared = SharedReferences(folder.path, "float32")
    plan_of_one = ONE.replace("repeats = 3", "repeats = 1") if not good else ONE
    assert not go(folder, executor, plan_of_one, references=shared, listener=Listening())
    assert sum(is_reference(request) for request in executor.calls[0]) == 1
    assert sum(name.startswith("reference-") for name in executor.began) == made
    assert sum(counted) == made
    assert len(list((folder.path / "references").glob("*/"))) == made, "nor is its folder left"
    assert not shared._held


def test_a_row_that_waited_is_judged_as_any_other(folder: RunFolder) -> None:
    go(folder, Places(2, references_last, lambda request: differs(request, 1)))
    labels = {row["trial"]: row["outcomes"] for row in lines(folder)}
    assert labels == dict(zip(TRIALS, [["ok"], ["numerics"], ["ok"]], strict=True))
    (key,) = {row["reference"] for row in lines(folder)}
    assert {path.name for path in (folder.path / "references").iterdir()} == {key, f"{key}-again"}


def differs(request: TrialRequest, repeat: int) -> Row:
    apart = not is_reference(request) and request.repeat == repeat
    return make_row(request, workers=loses(5.0, 9.0 if apart else 4.0))


def test_a_reference_that_fails_frees_what_waits_for_it(folder: RunFolder) -> None:
    def outcome(request: TrialRequest) -> Row:
        return make_row(request, "hang", reason="slow") if is_reference(request) else ends_ok(request)

    go(folder, Places(2, references_last, outcome))
    assert set(numerics(folder).values()) == {"unavailable: the reference itself ended as hang: slow"}


def test_nothing_of_a_row_that_waited_is_left_behind(folder: RunFolder) -> None:
    go(folder, Places(2, references_last))
    assert not list(folder.path.glob(f"trials/*/{ASIDE}"))


def interrupted_by_the_reference(running: list[TrialRequest]) -> TrialRequest:
    """Ctrl-C when only a reference is left to run."""
    if all(map(is_reference, running)):
        raise KeyboardInterrupt
    return references_last(running)


def test_rows_that_an_interrupt_finds_waiting_are_judged_by_the_run_that_resumes(folder: RunFolder) -> None:
    progress = Progress()
    assert go(folder, Places(2, interrupted_by_the_reference), listener=progress)
    assert lines(folder) == []
    assert list(progress.waiting) == TRIALS
    executor = Places(2, oldest, lambda request: differs(request, 0))
    assert not go(folder, executor)
    assert [is_reference(request) for (request,) in executor.calls] == [True], "no trial is run again"
    assert numerics(folder) == dict.fromkeys(TRIALS, "ok")
    assert {row["wall_s"] for row in lines(folder)} == {7.25}, "the row of then, with what the executor had seen"


def test_a_reference_that_was_interrupted_is_none(folder: RunFolder) -> None:
    references = References(folder.path, "float32")
    go(folder, Places(2, interrupted_by_the_reference), references=references)
    assert lines(folder) == [], "and they are not written as beyond judging"
    (key,) = references.claim(references.firsts(make_plan(matrix(ONE), matrix(ONE).scenarios, folder, repeats=1).requests))
    assert not references.knows(key)


def killed_by_the_reference(running: list[TrialRequest]) -> TrialRequest:
    if all(map(is_reference, running)):
        raise Killed
    return references_last(running)


@pytest.mark.parametrize("left", ["whole", "torn", "none"])
def test_what_a_killed_run_had_not_judged_is_recovered_and_judged(folder: RunFolder, left: str) -> None:
    """From the row that was set aside; from the trial's result where the kill came before that, or into it."""
    with pytest.raises(Killed):
        go(folder, Places(2, killed_by_the_reference))
    for aside in folder.path.glob(f"trials/*/{ASIDE}"):
        if left == "torn":
            aside.write_text(aside.read_text()[:40])
        elif left == "none":
            aside.unlink()
    executor = Places(2, oldest)
    assert not go(folder, executor)
    assert [is_reference(request) for (request,) in executor.calls] == [True]
    assert numerics(folder) == dict.fromkeys(TRIALS, "ok")


def test_a_reference_that_ended_before_the_kill_is_not_made_again(folder: RunFolder) -> None:
    """And what waited for it is judged first of all."""

    class Stops(Progress):
        def reference_ended(self, row: Row) -> None:  # type: ignore[override]
            raise Killed

    with pytest.raises(Killed):
        go(folder, Places(1, oldest), listener=Stops())
    assert lines(folder) == []
    written: list[int] = []

    def pick(running: list[TrialRequest]) -> TrialRequest:
        written.append(len(lines(folder)))
        return oldest(running)

    executor = Places(1, pick)
    go(folder, executor)
    assert executor.ended == TRIALS[1:]
    assert written == [1, 2]
    assert numerics(folder) == dict.fromkeys(TRIALS, "ok")


def test_a_kill_between_the_row_and_what_was_set_aside_writes_no_row_twice(folder: RunFolder) -> None:
    with pytest.raises(Killed):
        go(folder, Places(2, killed_by_the_reference))
    asides = {path: path.read_text() for path in folder.path.glob(f"trials/*/{ASIDE}")}
    go(folder, Places(2, oldest))
    for path, text in asides.items():
        path.write_text(text)
    executor = Places(2, oldest)
    go(folder, executor)
    assert executor.calls == []
    assert numerics(folder) == dict.fromkeys(TRIALS, "ok")


def test_a_kill_before_the_row_is_on_disk_keeps_what_was_set_aside(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(row: Row) -> None:
        raise Killed

    monkeypatch.setattr(folder, "append", killed)
    with pytest.raises(Killed):
        go(folder, Places(2, references_last))
    monkeypatch.undo()
    go(folder, Places(2, oldest))
    assert numerics(folder) == dict.fromkeys(TRIALS, "ok")
    assert {row["wall_s"] for row in lines(folder)} == {7.25}


def test_an_interrupt_while_rows_are_judged_loses_none_of_them(folder: RunFolder) -> None:
    """Ctrl-C behind the first of three: their reference is there, so the other two are written as well."""

    class Presses(Progress):
        pressed = False

        def ended(self, row: Row) -> None:  # type: ignore[override]
            super().ended(row)
            self.pressed = True

    progress = Presses()

    @contextmanager
    def held() -> Iterator[None]:
        yield
        if progress.pressed and progress.done:
            progress.pressed, progress.done = False, 0
            raise KeyboardInterrupt

    assert go(folder, Places(2, references_last), listener=progress, held=held)
    assert numerics(folder) == dict.fromkeys(TRIALS, "ok")


def test_a_reference_warms_no_cache_of_a_trial(folder: RunFolder) -> None:
    text = 'schema = 1\n[defaults]\nrepeats = 1\n[axes]\ncache = ["warm", "cold"]\n'
    executor = Places(2, oldest)
    go(folder, executor, text, caches=WarmCaches(folder.path))
    primers, together = executor.calls
    assert [request.trial_id for request in primers] == ["prime-lock=every_step,cache=warm"]
    (reference,) = [request for request in together if is_reference(request)]
    assert reference.scenario.cache == "cold"
    assert "cache_dir" not in reference.extra
    assert not reference.probes
    assert [bool(request.extra.get("cache_from")) for request in together if not is_reference(request)] == [True, False]


def test_rows_that_wait_are_not_held_in_memory(folder: RunFolder) -> None:
    """60 rows of 100 kB; less than two of them when the last waits."""
    held: list[int] = []

    def pick(running: list[TrialRequest]) -> TrialRequest:
        chosen = references_last(running)
        if is_reference(chosen):
            held.append(tracemalloc.get_traced_memory()[0])
        return chosen

    text = ONE.replace("repeats = 3", "repeats = 60")
    executor = Places(2, pick, lambda request: make_row(request, workers=loses(5.0), stuff="x" * 100_000))
    tracemalloc.start()
    go(folder, executor, text)
    tracemalloc.stop()
    assert held[0] < 1_000_000
    assert len(lines(folder)) == 60


def in_time(call: Callable[[], object]) -> None:
    """On a thread that is given up after a while, for what would wait for ever if it were wrong."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("left_one", [True, False])
def test_trials_start_while_another_process_makes_their_reference(folder: RunFolder, left_one: bool) -> None:
    """Where it makes none after all, this one does."""
    other = SharedReferences(folder.path, "float32")
    plan = make_plan(matrix(ONE), matrix(ONE).scenarios, folder, repeats=1)
    (theirs,) = other.claim(other.firsts(plan.requests)).values()

    def pick(running: list[TrialRequest]) -> TrialRequest:
        if len(executor.ended) == 2:  # the last of the trials ends: now theirs does
            if left_one:
                (theirs.folder / "result.json").write_text(json.dumps({"outcome": "ok", "workers": loses(5.0, 4.0)}))
            other.release()
        return oldest(running)

    executor = Places(1, pick)
    in_time(lambda: go(folder, executor, references=SharedReferences(folder.path, "float32")))
    assert executor.ended[:3] == TRIALS
    assert len(executor.ended) == (3 if left_one else 4)
    assert numerics(folder) == dict.fromkeys(TRIALS, "ok")


def test_a_reference_is_free_for_others_once_it_has_ended(folder: RunFolder) -> None:
    """Also while the trials of the process that made it go on: here it left nothing that others could take."""
    plan = make_plan(matrix(ONE), matrix(ONE).scenarios, folder, repeats=1)
    other = SharedReferences(folder.path, "float32")
    seen: list[int] = []

    class Listening(Progress):
        def started(self, request: Any) -> None:
            super().started(request)
            seen.append(len(other.claim(other.firsts(plan.requests))))
            other.release()

        def reference_started(self, request: Any) -> None:
            super().reference_started(request)
            seen.append(len(other.claim(other.firsts(plan.requests))))

    executor = Places(
        1, oldest, lambda request: make_row(request, "crash") if is_reference(request) else ends_ok(request)
    )
    go(folder, executor, references=SharedReferences(folder.path, "float32"), listener=Listening())
    assert seen == [0, 0, 1, 1], "not while it is to run or runs"
