"""A trial whose losses leave its reference is in doubt until a second run of it has told what honest runs differ by."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_runs import make_row, matrix
from places import ONE, Killed, Places, go, is_reference, lines, loses, oldest, references_last

from harness.control import rundir
from harness.control.recovery import ASIDE
from harness.control.references import AGAIN, References
from harness.control.request import Row, TrialRequest
from harness.control.rundir import RunFolder
from harness.control.runner import make_plan
from harness.control.shared import SharedReferences
from harness.report.progress import Progress

FIRST = [5.0, 4.0]
NOISY = [5.0, 4.2]  # off by 0.05
CLOSE = [5.0, 4.4]  # off by 0.1: less than three times as much
FAR = [5.0, 4.8]  # off by 0.2


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with rundir.open_run(tmp_path / "run", resume=False) as opened:
        opened.open_results(lambda note: None)
        yield opened


def is_second(request: TrialRequest) -> bool:
    return is_reference(request) and request.trial_id.endswith(AGAIN)


def gives(
    *trials: Sequence[float], again: Sequence[float] | Row = FIRST
) -> Callable[[TrialRequest], Row]:
    """Losses by number of the repeat, the last for all that follow; `again`: those of the second reference, or its row."""

    def outcome(request: TrialRequest) -> Row:
        if is_second(request) and isinstance(again, dict):
            return make_row(request, **again)
        trial = trials[min(request.repeat, len(trials) - 1)] if trials else ()
        losses = again if is_second(request) else FIRST if is_reference(request) else trial
        assert not isinstance(losses, dict)
        return make_row(request, workers=loses(*losses))

    return outcome


def judged(folder: RunFolder) -> dict[int, tuple[list[str], str]]:
    """By repeat: labels, and what was said of the numbers."""
    found = lines(folder)
    assert len({row["trial"] for row in found}) == len(found), "a row is written once"
    return {row["repeat"]: (row["outcomes"], row["oracles"].get("numerics", "not judged")) for row in found}


ACQUITTED = (["ok"], "ok (drafter-0 off by up to 0.1 at step 1, tolerance 0.0001; the reference from itself by 0.05)")
STANDS = "drafter-0, step 1: loss 4.8, reference 4 (off by 0.2, tolerance 0.0001, the reference from itself "


def test_a_trial_no_further_off_than_its_reference_from_itself_is_acquitted(folder: RunFolder) -> None:
    go(folder, Places(2, references_last, gives(FIRST, CLOSE, FAR, again=NOISY)))
    assert judged(folder) == {0: (["ok"], "ok"), 1: ACQUITTED, 2: (["numerics"], f"{STANDS}0.05)")}
    (far,) = [row for row in lines(folder) if row["repeat"] == 2]
    assert (far["outcome"], far["reason"]) == ("numerics", f"{STANDS}0.05)")


def test_where_references_agree_to_the_bit_every_difference_stands(folder: RunFolder) -> None:
    go(folder, Places(2, references_last, gives(FIRST, FAR)))
    assert judged(folder)[1] == (["numerics"], f"{STANDS}0)")


def test_no_second_reference_is_run_where_nothing_is_in_doubt(folder: RunFolder) -> None:
    executor = Places(2, references_last, gives(FIRST))
    go(folder, executor)
    assert len(executor.began) == 4


@pytest.mark.parametrize("pick", [oldest, references_last])
def test_one_second_reference_serves_all_that_are_in_doubt_and_comes_last(
    folder: RunFolder, pick: Callable[[list[TrialRequest]], TrialRequest]
) -> None:
    executor = Places(1, pick, gives(CLOSE, again=NOISY))
    go(folder, executor)
    (key,) = {row["reference"] for row in lines(folder)}
    assert executor.began[-1] == f"reference-{key}{AGAIN}"
    assert len(executor.began) == 5
    assert judged(folder) == dict.fromkeys(range(3), ACQUITTED)
    assert sorted(path.name for path in (folder.path / "references").iterdir()) == [key, key + AGAIN]
    assert not list(folder.path.glob(f"trials/*/{ASIDE}"))


def test_each_configuration_has_a_second_reference_of_its_own(folder: RunFolder) -> None:
    text = 'schema = 1\n[defaults]\nrepeats = 1\n[axes]\ncheckpoint = ["none", "reentrant"]\nlock = ["none", "first_step"]\n'
    executor = Places(2, oldest, gives(FAR))
    go(folder, executor, text)
    second = [request for request in executor.calls[-1] if is_second(request)]
    assert sorted(request.scenario.checkpoint for request in second) == ["none", "reentrant"]
    assert len(executor.calls) == 2, "both in one go"
    assert all(request.extra == {"reference": True} and not request.probes for request in second)


@pytest.mark.parametrize(
    ("again", "why"),
    [
        ({"outcome": "hang", "outcomes": ["hang"], "reason": "slow"}, "it ended as hang: slow"),
        ({"outcome": "skipped", "outcomes": ["skipped"], "reason": "no"}, "it ended as skipped: no"),
        ({"outcome": "interrupted", "outcomes": ["interrupted"]}, "it did not come to an end a second time"),
        ({"workers": loses()}, "its second run told no loss to compare"),
    ],
)
def test_without_a_second_reference_the_difference_stands_and_says_why(folder: RunFolder, again: Row, why: str) -> None:
    go(folder, Places(2, references_last, gives(FIRST, FAR, FIRST, again=again)))
    seen = "drafter-0, step 1: loss 4.8, reference 4 (off by 0.2, tolerance 0.0001)"
    text = f"{seen}; the reference could not be run again: {why}"
    assert judged(folder)[1] == (["numerics"], text)
    assert {row["reason"] for row in lines(folder)} == {"", text}


class Counting(Progress):
    """What a listener is told, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []
        self.counted = 0

    def references(self, count: int) -> None:
        super().references(count)
        self.counted += count

    def reference_started(self, request: Any) -> None:
        super().reference_started(request)
        self.heard.append(f"reference {'again' if is_second(request) else 'starts'}")

    def reference_ended(self, row: Any) -> None:
        super().reference_ended(row)
        self.heard.append("reference ended")

    def waits(self, row: Any) -> None:
        super().waits(row)
        self.heard.append(f"waits {row['repeat']}")

    def ended(self, row: Any) -> None:
        super().ended(row)
        self.heard.append(f"ended {row['repeat']} {row['outcome']}")


def test_a_display_is_told_of_the_second_reference_and_of_each_trial_once(folder: RunFolder) -> None:
    progress = Counting()
    go(folder, Places(1, oldest, gives(FAR, FIRST, FAR)), listener=progress)
    assert progress.heard == [
        *("waits 0", "reference starts", "reference ended", "ended 1 ok", "waits 2"),
        *("reference again", "reference ended", "ended 0 numerics", "ended 2 numerics"),
    ]
    assert progress.counted == 2
    assert (progress.done, progress.failed, progress.waiting) == (3, 2, {})
    assert progress._left.references == 0


def stopped_by(error: type[BaseException]) -> Callable[[list[TrialRequest]], TrialRequest]:
    """When the second reference runs."""

    def pick(running: list[TrialRequest]) -> TrialRequest:
        if any(map(is_second, running)):
            raise error
        return references_last(running)

    return pick


@pytest.mark.parametrize("error", [KeyboardInterrupt, Killed])
def test_a_row_in_doubt_survives_and_is_judged_by_the_run_that_resumes(
    folder: RunFolder, error: type[BaseException]
) -> None:
    stopped = Places(2, stopped_by(error), gives(FIRST, CLOSE, FAR, again=NOISY))
    if error is Killed:
        with pytest.raises(Killed):
            go(folder, stopped)
    else:
        assert go(folder, stopped)
    assert judged(folder) == {0: (["ok"], "ok")}, "the others are not written as beyond judging"
    executor = Places(2, oldest, gives(FIRST, CLOSE, FAR, again=NOISY))
    assert not go(folder, executor)
    assert [name.endswith(AGAIN) for name in executor.began] == [True], "no trial, nor the first reference"
    assert judged(folder) == {0: (["ok"], "ok"), 1: ACQUITTED, 2: (["numerics"], f"{STANDS}0.05)")}


def test_a_second_reference_that_is_there_is_not_run_again(folder: RunFolder) -> None:
    """Of an earlier part of the run; trials of the same configuration that come later are held against both."""
    two = ONE.replace("repeats = 3", "repeats = 2")
    go(folder, Places(2, oldest, gives(CLOSE, again=NOISY)), two)
    executor = Places(2, oldest, gives(FAR, again=FIRST))
    go(folder, executor)
    assert executor.began == ["default--r2"]
    assert judged(folder) == {0: ACQUITTED, 1: ACQUITTED, 2: (["numerics"], f"{STANDS}0.05)")}


def test_a_reference_of_an_older_release_is_as_good_as_any(folder: RunFolder) -> None:
    """Its rows had no second one, and its folder has none."""
    go(folder, Places(2, oldest, gives(FIRST)), ONE.replace("repeats = 3", "repeats = 1"))
    executor = Places(2, oldest, gives(CLOSE, again=NOISY))
    go(folder, executor)
    assert sum(name.startswith("reference-") for name in executor.began) == 1
    assert judged(folder) == {0: (["ok"], "ok"), 1: ACQUITTED, 2: ACQUITTED}


def test_a_bisections_later_rounds_take_what_is_known(folder: RunFolder) -> None:
    """The same references serve one round after another."""
    references = References(folder.path, "float32")
    executor = Places(2, oldest, gives(CLOSE, again=NOISY))
    for repeats in (1, 2, 3):
        go(folder, executor, ONE.replace("repeats = 3", f"repeats = {repeats}"), references=references)
    assert sum(name.startswith("reference-") for name in executor.began) == 2
    assert judged(folder) == dict.fromkeys(range(3), ACQUITTED)


@pytest.mark.parametrize("left_one", [True, False])
def test_of_several_processes_one_makes_the_second_reference(folder: RunFolder, left_one: bool) -> None:
    """The others wait for it; where it makes none after all, one of them does."""
    plan = make_plan(matrix(ONE), matrix(ONE).scenarios, folder, repeats=1)
    other = SharedReferences(folder.path, "float32")
    other.prepare(plan.requests, Places(1, oldest, gives(FIRST)))
    (theirs,) = other.claim(plan.requests, again=True).values()
    asked = threading.Event()

    class Shared(SharedReferences):
        def _own(self, key: str, wait: bool) -> bool:
            if key.endswith(AGAIN) and wait:
                asked.set()
            return super()._own(key, wait)

    executor = Places(1, oldest, gives(CLOSE, again=NOISY))
    run = threading.Thread(
        target=lambda: go(folder, executor, references=Shared(folder.path, "float32")), daemon=True
    )
    run.start()
    assert asked.wait(20)
    assert lines(folder) == []
    if left_one:
        (theirs.folder / "result.json").write_text(json.dumps({"outcome": "ok", "workers": loses(*NOISY)}))
    other.release()
    run.join(20)
    assert not run.is_alive()
    assert executor.ended[:3] == [f"default--r{repeat}" for repeat in range(3)]
    assert len(executor.ended) == (3 if left_one else 4)
    assert judged(folder) == dict.fromkeys(range(3), ACQUITTED)


def test_a_second_reference_is_free_for_others_once_it_has_ended(folder: RunFolder) -> None:
    shared = SharedReferences(folder.path, "float32")
    go(folder, Places(1, oldest, gives(CLOSE, again=NOISY)), references=shared)
    assert not shared._held
    other = SharedReferences(folder.path, "float32")
    for path in (folder.path / "references").glob(f"*{AGAIN}"):
        shutil.rmtree(path)
    plan = make_plan(matrix(ONE), matrix(ONE).scenarios, folder, repeats=4)
    assert len(other.claim(plan.requests, again=True, wait=True)) == 1


def test_prepare_makes_second_references_as_well(tmp_path: Path) -> None:
    references = References(tmp_path, "float32")
    trial = TrialRequest("t", matrix(ONE).scenarios[0], 0, tmp_path / "t")
    executor = Places(1, oldest, gives(again=NOISY))
    references.prepare([trial], executor)
    row = make_row(trial, workers=loses(*CLOSE), reference=references.key_of(trial))
    assert references.awaited(row) == references.key_of(trial) + AGAIN
    references.prepare([trial, trial], executor, again=True)
    assert len(executor.began) == 2
    assert references.awaited(row) == ""
    references.judge(row)
    assert (row["outcomes"], row["oracles"]["numerics"]) == ACQUITTED


def test_synchronised_replicas_are_compared_up_to_anybodys_first_error(folder: RunFolder) -> None:
    text = 'schema = 1\n[defaults]\nrepeats = 1\n[axes]\nreplicas = ["synchronised"]\ndrafters = [2]\n'

    def outcome(request: TrialRequest) -> Row:
        first = loses(*FIRST)["drafter-0"]
        if is_second(request):
            return make_row(request, workers={"a": {**first, "losses": [5.0, None]}, "b": {**first, "losses": NOISY}})
        found = first if is_reference(request) else {**first, "losses": FAR}
        return make_row(request, workers={"a": first, "b": found})

    go(folder, Places(1, oldest, outcome), text)
    (row,) = lines(folder)
    assert row["oracles"]["numerics"].startswith("b, step 1: loss 4.8, reference 4 (off by 0.2, ")
    assert row["oracles"]["numerics"].endswith("from itself 0)"), "after a's error, b says nothing"
