"""Replays: the recorded order again, or the first event that differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planted import programs
from planted.rig import run

import harness
from harness.core.recording import NAME, Passed, Recording, RecordingError, check_same, read_recording

PROGRAMS = [
    programs.CheckThenAct,
    programs.LostUpdate,
    programs.LockInversion,
    programs.Aba,
    programs.ThreeThreads,
    programs.Correct,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_fifty_recordings_come_back_in_the_same_order_and_to_the_same_end(program: type[Any]) -> None:
    for seed in range(50):
        schedule = f"pct:{seed}:3:{program.points}" if seed % 2 else f"delays:{seed}"
        recorded = run(program, schedule)
        again = run(program, "replay", recording=recorded.recording)
        assert again.told["order"] == "same", (schedule, again.told)
        assert again.recording.events == recorded.recording.events  # type: ignore[union-attr]
        assert again.failed == recorded.failed


def failing_and_passing() -> tuple[Recording, Recording]:
    found: dict[bool, Recording] = {}
    for seed in range(100):
        done = run(programs.LostUpdate, f"pct:{seed}:2:6")
        assert done.recording is not None
        found.setdefault(done.failed, done.recording)
    return found[True], found[False]


def test_an_order_decides_the_outcome_and_not_chance() -> None:
    failing, passing = failing_and_passing()
    for _ in range(10):
        assert run(programs.LostUpdate, "replay", recording=failing).failed
        assert not run(programs.LostUpdate, "replay", recording=passing).failed


def test_another_point_than_recorded_is_the_first_difference() -> None:
    failing, _ = failing_and_passing()
    done = run(programs.CheckThenAct, "replay", recording=failing)
    assert done.told["order"] == "diverged"
    found = done.told["divergence"]
    assert "mark.read" in found["expected"]
    assert "mark.check" in found["came"]


def test_an_order_that_cannot_go_on_is_told_with_the_reason() -> None:
    """The second thread is to read while the first holds the lock."""
    events = [
        Passed("worker-0", "thread.start"),
        Passed("worker-1", "thread.start"),
        Passed("worker-0", "mark.before"),
        Passed("worker-1", "mark.before"),
        Passed("worker-0", "mark.read"),
        Passed("worker-1", "mark.read"),
        Passed("worker-0", "mark.write"),
    ]
    done = run(programs.Correct, "replay", recording=Recording(tuple(events)))
    assert done.told["order"] == "diverged"
    found = done.told["divergence"]
    assert found["index"] == 5
    assert "worker-1 waits for the lock, held by worker-0" in found["why"]
    assert not done.failed


def test_a_recording_that_goes_on_longer_than_the_trial_is_no_success() -> None:
    failing, _ = failing_and_passing()
    longer = Recording((*failing.events, Passed("worker-0", "mark.more")))
    done = run(programs.LostUpdate, "replay", recording=longer)
    assert done.told["order"] == "diverged"
    assert "mark.more" in done.told["divergence"]["expected"]


def test_a_segment_can_be_run_late() -> None:
    """The write of worker-0 belongs to the segment after its last point; late segments end at a point, so this one is
    seen at `mark.write`: with the segment before it late, the read happens just before the write and not at `mark.read`."""
    order = [
        Passed("worker-0", "thread.start"),
        Passed("worker-1", "thread.start"),
        Passed("worker-0", "mark.read"),
        Passed("worker-1", "mark.read"),
        Passed("worker-1", "mark.write"),
        Passed("worker-0", "mark.write"),
    ]
    early = run(programs.LostUpdate, "replay", recording=Recording(tuple(order)))
    assert early.told["order"] == "same"
    assert early.failed
    late = run(programs.LostUpdate, "replay", recording=Recording(tuple(order)), late=[5])
    assert late.told["order"] == "same"


@pytest.mark.parametrize("keep", [0, 1, 3, -1])
def test_a_recording_that_is_cut_off_is_refused(tmp_path: Path, keep: int) -> None:
    Recording((Passed("a", "mark.x"), Passed("b", "mark.y"), Passed("a", "mark.z"))).write(tmp_path)
    lines = (tmp_path / NAME).read_text().splitlines(keepends=True)
    (tmp_path / NAME).write_text("".join(lines[:keep]))
    with pytest.raises(RecordingError, match="cut off"):
        read_recording(tmp_path)


def test_a_recording_cut_within_a_line_is_refused(tmp_path: Path) -> None:
    Recording((Passed("a", "mark.x"),)).write(tmp_path)
    text = (tmp_path / NAME).read_text()
    (tmp_path / NAME).write_text(text[:-4])
    with pytest.raises(RecordingError, match="cut off"):
        read_recording(tmp_path)


def test_a_folder_without_a_recording_says_which_trials_have_one(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="delays, pct, directed"):
        read_recording(tmp_path)


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = Recording((Passed("a", "mark.x", "info"), Passed("b@engine", "engine.exit")), {"torch": "2.13.0"})
    found = read_recording(kept.write(tmp_path))
    assert found.events == kept.events
    assert found.head["torch"] == "2.13.0"
    assert found.head["harness"] == harness.__version__


@pytest.mark.parametrize(("torch", "own"), [("2.11.0", ""), ("2.13.0", "0.0.1")])
def test_other_versions_are_refused_unless_forced(torch: str, own: str) -> None:
    recording = Recording((), {"torch": torch, "harness": own or harness.__version__})
    with pytest.raises(RecordingError, match="--force") as error:
        check_same(recording, "2.13.0")
    assert (torch in str(error.value)) == (torch != "2.13.0")
    assert check_same(recording, "2.13.0", force=True)


def test_the_same_versions_are_the_same() -> None:
    assert check_same(Recording((), {"torch": "2.13.0", "harness": harness.__version__}), "2.13.0") == ""


def test_an_event_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps({"schema": 1}) + "\n[1, 2]\n" + json.dumps({"end": 1}) + "\n")
    with pytest.raises(RecordingError, match="event 1"):
        read_recording(tmp_path)
