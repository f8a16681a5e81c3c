"""A trial whose losses leave its reference is in doubt until further runs of it have told what honest runs differ by."""

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

from harness.analysis.numerics import NOT_MOVED, NOT_TOLD, is_unsettled
from harness.control import rundir
from harness.control.recovery import ASIDE
from harness.control.references import AGAIN, FURTHER, References
from harness.control.request import Row, TrialRequest
from harness.control.rundir import RunFolder
from harness.control.runner import make_plan
from harness.control.shared import SharedReferences
from harness.report.progress import Progress

FIRST = [5.0, 4.0]
NOISY = [5.0, 4.2]  # off by 0.05
CLOSE = [5.0, 4.4]  # off by 0.1: less than three times as much
FAR = [5.0, 5.6]  # off by 0.4, and by 0.33 from the noisy one


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with rundir.open_run(tmp_path / "run", resume=False) as opened:
        opened.open_results(lambda note: None)
        yield opened


def is_second(request: TrialRequest) -> bool:
    return is_reference(request) and request.trial_id.endswith(AGAIN)


def is_further(request: TrialRequest) -> bool:
    """A third or a fourth."""
    return is_reference(request) and request.trial_id.endswith(FURTHER[1:])


def references_of(executor: Places) -> list[str]:
    """Those that began, by what their keys have more than the first's."""
    return [more_of(name) for name in executor.began if name.startswith("reference-")]


def more_of(trial_id: str) -> str:
    return "".join(trial_id.partition(AGAIN)[1:])


Given = Sequence[float] | Row


def gives(
    *trials: Sequence[float], again: Given = FIRST, again2: Given | None = None, again3: Given | None = None
) -> Callable[[TrialRequest], Row]:
    """Losses by number of the repeat, the last for all that follow; of the further references, or their rows.

    Those that are not given are as the second.
    """
    further = {"-again": again, "-again2": again2, "-again3": again3}

    def outcome(request: TrialRequest) -> Row:
        given: Given = trials[min(request.repeat, len(trials) - 1)] if trials else ()
        if is_reference(request):
            more = more_of(request.trial_id)
            given = (further[more] or again) if more else FIRST
        return make_row(request, **given) if isinstance(given, dict) else make_row(request, workers=loses(*given))

    return outcome


def judged(folder: RunFolder) -> dict[int, tuple[list[str], str]]:
    """By repeat: labels, and what was said of the numbers."""
    found = lines(folder)
    assert len({row["trial"] for row in found}) == len(found), "a row is written once"
    return {row["repeat"]: (row["outcomes"], row["oracles"].get("numerics", "not judged")) for row in found}


ACQUITTED = (["ok"], "ok (drafter-0 off by up to 0.1 at step 1, tolerance 0.0001; the reference from itself by 0.05)")
STANDS = "drafter-0, step 1: loss 5.6, reference 4 (off by 0.4, tolerance 0.0001, the reference from itself "


def test_a_trial_no_further_off_than_its_reference_from_itself_is_acquitted(folder: RunFolder) -> None:
    go(folder, Places(2, references_last, gives(FIRST, CLOSE, FAR, again=NOISY)))
    assert judged(folder) == {0: (["ok"], "ok"), 1: ACQUITTED, 2: (["numerics"], f"{STANDS}0.05 in 4 runs)")}
    (far,) = [row for row in lines(folder) if row["repeat"] == 2]
    assert (far["outcome"], far["reason"]) == ("numerics", f"{STANDS}0.05 in 4 runs)")


def test_where_references_agree_to_the_bit_every_difference_stands(folder: RunFolder) -> None:
    go(folder, Places(2, references_last, gives(FIRST, FAR)))
    assert judged(folder)[1] == (["numerics"], f"{STANDS}0)")


@pytest.mark.parametrize("again", [FIRST, NOISY])
def test_references_that_agree_as_nothing_could_nudge_them_settle_nothing(folder: RunFolder, again: Sequence[float]) -> None:
    """Where they differ all the same, they tell by how much."""
    unmoved = {"workers": loses(*again), "facts": {"nudged": False}}
    executor = Places(2, references_last, gives(FIRST, FAR, again=unmoved))
    go(folder, executor)
    assert references_of(executor) == ["", "-again", *(() if again is FIRST else ("-again2", "-again3"))]
    text = f"{STANDS}0); {NOT_MOVED}" if again is FIRST else f"{STANDS}0.05 in 4 runs)"
    assert judged(folder)[1] == (["numerics"], text)
    assert is_unsettled(text) == (again is FIRST)


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
    seen = "drafter-0, step 1: loss 5.6, reference 4 (off by 0.4, tolerance 0.0001)"
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
    assert references_of(executor) == list(FURTHER), "not the first"
    assert len(executor.began) == 3, "no trial"
    assert judged(folder) == {0: (["ok"], "ok"), 1: ACQUITTED, 2: (["numerics"], f"{STANDS}0.05 in 4 runs)")}


def test_a_second_reference_that_is_there_is_not_run_again(folder: RunFolder) -> None:
    """Of an earlier part of the run; trials of the same configuration that come later are held against both."""
    two = ONE.replace("repeats = 3", "repeats = 2")
    go(folder, Places(2, oldest, gives(CLOSE, again=NOISY)), two)
    executor = Places(2, oldest, gives(FAR, again2=FIRST))
    go(folder, executor)
    assert executor.began[0] == "default--r2"
    assert references_of(executor) == ["-again2", "-again3"]
    assert judged(folder) == {0: ACQUITTED, 1: ACQUITTED, 2: (["numerics"], f"{STANDS}0.05 in 4 runs)")}


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


def further(references: References, requests: Sequence[TrialRequest], *more: str) -> dict[str, TrialRequest]:
    """What trials in doubt need, by default second references."""
    return {references.key_of(request) + one: request for request in requests for one in more or (AGAIN,)}


@pytest.mark.parametrize("left_one", [True, False])
def test_of_several_processes_one_makes_the_second_reference(folder: RunFolder, left_one: bool) -> None:
    """The others wait for it; where it makes none after all, one of them does."""
    plan = make_plan(matrix(ONE), matrix(ONE).scenarios, folder, repeats=1)
    other = SharedReferences(folder.path, "float32")
    other.prepare(other.firsts(plan.requests), Places(1, oldest, gives(FIRST)))
    (theirs,) = other.claim(further(other, plan.requests)).values()
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
    assert len(other.claim(further(other, plan.requests), wait=True)) == 1


def test_prepare_makes_further_references_as_well(tmp_path: Path) -> None:
    references = References(tmp_path, "float32")
    trial = TrialRequest("t", matrix(ONE).scenarios[0], 0, tmp_path / "t")
    executor = Places(1, oldest, gives(again=NOISY))
    references.prepare(references.firsts([trial]), executor)
    key = references.key_of(trial)
    close, far = (make_row(trial, workers=loses(*losses), reference=key) for losses in (CLOSE, FAR))
    assert references.awaited(close) == references.awaited(far) == (key + AGAIN,)
    for _ in range(2):
        references.prepare(further(references, [trial, trial]), executor)
    assert len(executor.began) == 2
    assert references.awaited(close) == ()
    assert references.awaited(far) == tuple(key + more for more in FURTHER[1:])
    references.prepare(dict.fromkeys(references.awaited(far), trial), executor)
    assert references.awaited(far) == ()
    references.judge(close)
    references.judge(far)
    assert (close["outcomes"], close["oracles"]["numerics"]) == (["ok"], ACQUITTED[1].replace("0.05)", "0.05 in 4 runs)"))
    assert (far["outcomes"], far["oracles"]["numerics"]) == (["numerics"], f"{STANDS}0.05 in 4 runs)")


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
    assert row["oracles"]["numerics"].startswith("b, step 1: loss 5.6, reference 4 (off by 0.4, ")
    assert row["oracles"]["numerics"].endswith("from itself 0 in 3 runs)"), "after a's error, b of the second says nothing"


HANGS: Row = {"outcome": "hang", "outcomes": ["hang"], "reason": "slow"}
INTERRUPTED: Row = {"outcome": "interrupted", "outcomes": ["interrupted"]}


def test_what_two_references_do_not_settle_is_put_to_two_more_side_by_side(folder: RunFolder) -> None:
    progress = Counting()
    executor = Places(2, oldest, gives(FAR, FIRST, CLOSE, again=NOISY))
    go(folder, executor, listener=progress)
    asked = [[more_of(request.trial_id) for request in call] for call in executor.calls[1:]]
    assert asked == [["-again"], ["-again2", "-again3"]]
    assert judged(folder) == {0: (["numerics"], f"{STANDS}0.05 in 4 runs)"), 1: (["ok"], "ok"), 2: ACQUITTED}
    assert progress.counted == 4
    assert (progress.done, progress.failed, progress.waiting) == (3, 1, {})
    assert progress._left.references == 0
    assert not list(folder.path.glob(f"trials/*/{ASIDE}"))


@pytest.mark.parametrize("number", [2, 3])
def test_one_that_a_further_reference_comes_near_is_acquitted(folder: RunFolder, number: int) -> None:
    near = [5.0, 5.2]
    go(folder, Places(2, oldest, gives(FAR, again=NOISY, **{f"again{number}": near})))
    said = "ok (drafter-0 off by up to 0.4 at step 1, tolerance 0.0001; the reference from itself by 0.3 in 4 runs)"
    assert judged(folder) == dict.fromkeys(range(3), (["ok"], said))


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("ended", [HANGS, {"workers": loses()}, INTERRUPTED])
def test_three_references_are_enough_where_the_fourth_fails(folder: RunFolder, number: int, ended: Row) -> None:
    go(folder, Places(2, oldest, gives(FAR, again=NOISY, **{f"again{number}": ended})))
    assert judged(folder) == dict.fromkeys(range(3), (["numerics"], f"{STANDS}0.05 in 3 runs)"))


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (HANGS, "it ended as hang: slow"),
        ({"workers": loses()}, "its further run told no loss to compare"),
        (INTERRUPTED, "it did not come to an end once more"),
    ],
)
def test_two_references_that_drift_settle_nothing_where_all_others_fail(folder: RunFolder, ended: Row, why: str) -> None:
    go(folder, Places(2, oldest, gives(FAR, CLOSE, again=NOISY, again2=ended, again3=ended)))
    text = f"{STANDS}0.05); the reference could not be run again: {why}"
    assert judged(folder) == {0: (["numerics"], text), 1: ACQUITTED, 2: ACQUITTED}
    assert [is_unsettled(row["oracles"]["numerics"]) for row in lines(folder) if row["repeat"] == 0] == [True]


def test_references_of_which_one_overflows_settle_nothing_and_are_not_run_again(folder: RunFolder) -> None:
    executor = Places(2, oldest, gives(FAR, again=["nan", 4.0]))  # type: ignore[list-item]
    go(folder, executor)
    assert references_of(executor) == ["", "-again"]
    text = f"{STANDS}inf); {NOT_TOLD}"
    assert judged(folder) == dict.fromkeys(range(3), (["numerics"], text))
    assert {row["reason"] for row in lines(folder)} == {text}
    assert is_unsettled(text)


def test_what_stands_is_told_without_what_does_not(folder: RunFolder) -> None:
    """Of two drafters; and it takes no further references."""
    first = loses(*FIRST)["drafter-0"]
    losses = {True: (NOISY, FIRST), False: (FAR, FAR)}

    def outcome(request: TrialRequest) -> Row:
        a, b = (FIRST, FIRST) if is_reference(request) and not is_second(request) else losses[is_reference(request)]
        return make_row(request, workers={"a": {**first, "losses": a}, "b": {**first, "losses": b}})

    executor = Places(1, oldest, outcome)
    go(folder, executor)
    assert references_of(executor) == ["", "-again"]
    (said,) = {row["oracles"]["numerics"] for row in lines(folder)}
    assert said == "b, step 1: loss 5.6, reference 4 (off by 0.4, tolerance 0.0001, the reference from itself 0)"


@pytest.mark.parametrize("error", [KeyboardInterrupt, Killed])
def test_a_row_that_waits_for_the_third_and_fourth_reference_survives(
    folder: RunFolder, error: type[BaseException]
) -> None:
    def pick(running: list[TrialRequest]) -> TrialRequest:
        if len(further := [*filter(is_further, running)]) == 1 and further[0].trial_id.endswith(FURTHER[-1]):
            raise error
        return references_last(running)

    outcome = gives(FIRST, CLOSE, FAR, again=NOISY)
    stopped = Places(2, pick, outcome)
    if error is Killed:
        with pytest.raises(Killed):
            go(folder, stopped)
    else:
        assert go(folder, stopped)
    assert judged(folder) == {0: (["ok"], "ok"), 1: ACQUITTED}
    executor = Places(2, oldest, outcome)
    assert not go(folder, executor)
    assert (len(executor.began), references_of(executor)) == (1, ["-again3"])
    assert judged(folder)[2] == (["numerics"], f"{STANDS}0.05 in 4 runs)")


@pytest.mark.parametrize("left", [(), (0,), (0, 1)])
def test_of_several_processes_one_makes_each_further_reference(folder: RunFolder, left: tuple[int, ...]) -> None:
    """Another makes the third and the fourth, and leaves none, one, or both."""
    plan = make_plan(matrix(ONE), matrix(ONE).scenarios, folder, repeats=1)
    other = SharedReferences(folder.path, "float32")
    other.prepare(other.firsts(plan.requests), Places(1, oldest, gives(FIRST)))
    other.prepare(further(other, plan.requests), Places(1, oldest, gives(again=NOISY)))
    theirs = [*other.claim(further(other, plan.requests, *FURTHER[1:])).values()]
    asked = threading.Event()

    class Shared(SharedReferences):
        def _own(self, key: str, wait: bool) -> bool:
            if wait:
                asked.set()
            return super()._own(key, wait)

    executor = Places(2, oldest, gives(FAR, again=NOISY))
    run = threading.Thread(target=lambda: go(folder, executor, references=Shared(folder.path, "float32")), daemon=True)
    run.start()
    assert asked.wait(20)
    assert lines(folder) == []
    for number in left:
        (theirs[number].folder / "result.json").write_text(json.dumps({"outcome": "ok", "workers": loses(*NOISY)}))
    other.release()
    run.join(20)
    assert not run.is_alive()
    assert references_of(executor) == [more for number, more in enumerate(FURTHER[1:]) if number not in left]
    assert judged(folder) == dict.fromkeys(range(3), (["numerics"], f"{STANDS}0.05 in 4 runs)"))


def test_a_reference_that_another_trial_asked_for_in_an_earlier_part_counts(folder: RunFolder) -> None:
    """By the first two it would stand: they are alike."""
    go(folder, Places(2, oldest, gives(FIRST)), ONE.replace("repeats = 3", "repeats = 1"))
    (first,) = (folder.path / "references").iterdir()
    for more, losses in zip(FURTHER, (FIRST, NOISY), strict=False):
        shutil.copytree(first, made := first.with_name(first.name + more))
        (made / "result.json").write_text(json.dumps({"outcome": "ok", "workers": loses(*losses)}))
    go(folder, Places(2, oldest, gives(CLOSE)))
    assert judged(folder)[1] == (["ok"], ACQUITTED[1].replace("0.05)", "0.05 in 3 runs)"))
