"""The row of a trial: the last events of its threads, and a lock that held nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.control.request import TrialRequest
from harness.control.rows import LAST_OF_THREAD, MOST_LAST_EVENTS, Ending, last_events, trial_row
from harness.core.events import event_line, read_events
from harness.core.scenario import Scenario


def event(at: int, ident: int, name: str = "t") -> dict[str, Any]:
    return {"t": at, "th": name, "id": ident, "w": "", "k": "step.done"}


def written(folder: Path, events: list[dict[str, Any]]) -> list[int]:
    """The times of what is kept."""
    (folder / "events.jsonl").write_text("".join(map(event_line, events)), "utf-8")
    return [found["t"] for found in last_events(folder)]


def test_a_thread_that_fell_silent_long_ago_keeps_its_last_events(tmp_path: Path) -> None:
    stuck = [event(at, 1) for at in range(8)]
    busy = [event(at, 2) for at in range(8, 500)]
    assert written(tmp_path, stuck + busy) == [3, 4, 5, 6, 7, 495, 496, 497, 498, 499]


def test_they_are_in_the_order_of_time(tmp_path: Path) -> None:
    assert written(tmp_path, [event(at, at % 3) for at in range(30)]) == list(range(15, 30))


def test_an_ident_that_was_given_again_is_another_thread(tmp_path: Path) -> None:
    found = written(tmp_path, [event(at, 1, "first") for at in range(9)] + [event(at, 1, "second") for at in range(9, 20)])
    assert found == [4, 5, 6, 7, 8, 15, 16, 17, 18, 19]


def test_many_threads_have_fewer_each(tmp_path: Path) -> None:
    count = MOST_LAST_EVENTS // 2
    found = written(tmp_path, [event(at, at % count) for at in range(count * LAST_OF_THREAD)])
    assert found == list(range(count * (LAST_OF_THREAD - 2), count * LAST_OF_THREAD))
    count = 3 * MOST_LAST_EVENTS
    assert written(tmp_path, [event(at, at) for at in range(count)]) == list(range(count - MOST_LAST_EVENTS, count))


def test_there_are_none_without_a_log(tmp_path: Path) -> None:
    assert last_events(tmp_path) == []


TAKEN = {"strategy": {"waits": 0, "taken": 2, "wait_s": 0.0, "hold_s": 0.1}}


def ended(folder: Path, lock: str, *, schedule: str = "none", **said: Any) -> dict[str, Any]:
    """The row of a trial whose steps went well unless `said` otherwise; it entered `step` alone, and took no lock."""
    result = {"outcomes": ["ok"], "steps_ok": 4, "locks": {}, "facts": {"regions": ["step"], "keyed": False}, **said}
    (folder / "result.json").write_text(json.dumps(result), "utf-8")
    request = TrialRequest("t", Scenario(lock=lock, schedule=schedule), 0, folder)
    return trial_row(request, Ending(0, "exited", 1.0, 0.1))


IDLE = ("per_call", "per_forward", "first_step", "warmup_barrier", "each:mask+loss", "span:loss..backward")


@pytest.mark.parametrize("lock", IDLE)
def test_a_lock_that_held_nothing_shows_nothing(tmp_path: Path, lock: str) -> None:
    row = ended(tmp_path, lock)
    assert (row["outcome"], row["outcomes"]) == ("skipped", ["skipped"])
    assert row["reason"].startswith("the lock strategy held nothing: no worker entered region ")
    assert "(entered: step)" in row["reason"]
    assert not row.get("problems"), "it is said once"


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ("none", {}),
        ("thread_local_fx", {}),
        ("process", {}),
        ("first_step", {"locks": TAKEN}),
        ("first_step", {"steps_ok": 0}),
        ("first_step", {"schedule": "directed"}),  # the plan's ending says what its lock did
    ],
)
def test_what_is_no_lock_or_was_taken_or_had_no_chance_counts(tmp_path: Path, lock: str, said: dict[str, Any]) -> None:
    row = ended(tmp_path, lock, **said)
    assert row["outcomes"] == ["ok"]
    assert not row.get("problems")


def test_a_failure_under_a_lock_that_held_nothing_stays_one(tmp_path: Path) -> None:
    row = ended(tmp_path, "first_step", outcomes=["graph_corrupt"])
    assert row["outcome"] == "graph_corrupt"
    (problem,) = row["problems"]
    assert problem["label"] == "lock"
    assert "held nothing" in problem["text"]


KILLED, EXITED_70 = int(signal.SIGKILL), 70 << 8
READY, BEGUN = {**event(1, 1), "k": "subject.ready"}, {**event(2, 1), "k": "subject.begin"}


def died(folder: Path, ending: Ending, *events: dict[str, Any]) -> tuple[list[str], str]:
    """Labels and reason of a trial that left no account; the time limit was 12 s."""
    (folder / "events.jsonl").write_text("".join(map(event_line, events)), "utf-8")
    (folder / "stdout.txt").write_text("Traceback\nValueError: planted\n\n", "utf-8")
    row = trial_row(TrialRequest("t", Scenario(), 0, folder, timeout_s=12.0), ending)
    return row["outcomes"], row["reason"]


@pytest.mark.parametrize(("cycle", "label"), [(False, "hang"), (True, "deadlock")])
def test_the_time_limit_is_quoted_and_a_cycle_is_a_deadlock(tmp_path: Path, cycle: bool, label: str) -> None:
    ending = Ending(KILLED, "timeout", 13.4, 0.1, "t-1 waits for t-0", cycle=cycle)
    assert died(tmp_path, ending, READY, BEGUN) == ([label], "no end within the time limit (12 s); t-1 waits for t-0")
    ending = Ending(KILLED, "hang", 13.4, 0.1, "t-1 waits for t-0", cycle=cycle)
    assert died(tmp_path, ending, READY, BEGUN)[0] == [label]


TOLD = "; its output ends: ValueError: planted"


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending(KILLED, "timeout", 13.4, 0.1, "w"), f"no end within the time limit (12 s), during the set-up; w{TOLD}"),
        (Ending(EXITED_70, "exited", 1.0, 0.1), f"the process ended with 70 during the set-up{TOLD}"),
        (Ending(0, "exited", 1.0, 0.1), f"the process ended with 0 during the set-up{TOLD}"),
        (Ending(int(signal.SIGSEGV), "exited", 1.0, 0.1), f"the process ended by SIGSEGV during the set-up{TOLD}"),
        (Ending(EXITED_70, "exited", 1.0, None), f"the process ended with 70 before the workload began{TOLD}"),
    ],
)
def test_an_end_before_the_workers_shows_nothing(tmp_path: Path, ending: Ending, said: str) -> None:
    assert died(tmp_path, ending, READY) == (["setup_error"], said)


def test_an_end_before_the_workers_for_lack_of_memory_is_called_so(tmp_path: Path) -> None:
    assert died(tmp_path, Ending(KILLED, "exited", 1.0, 0.1, for_memory=True), READY)[0] == ["out_of_memory"]


@pytest.mark.parametrize("told", [BEGUN, {**event(2, 1), "k": "worker.start"}])
def test_an_exit_of_a_worker_is_a_crash_with_the_last_line_of_its_output(tmp_path: Path, told: dict[str, Any]) -> None:
    assert died(tmp_path, Ending(EXITED_70, "exited", 1.0, 0.1), READY, told) == (
        ["crash"],
        f"the process ended with 70{TOLD}",
    )


def of_worker(at: int, kind: str, name: str, **more: str) -> dict[str, Any]:
    return {**event(at, at, name), "w": name, "k": kind, **more}


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ((), ""),
        (("target-0",), ""),
        (("target-0", "drafter-1"), ", after drafter-1 had ended"),
        (("drafter-1", "drafter-0"), ", after drafter-0 and drafter-1 had ended"),
    ],
)
def test_a_death_tells_which_drafters_threads_had_ended(tmp_path: Path, over: tuple[str, ...], said: str) -> None:
    """Torch's CUDA-graph trees kill a process whose thread ends (docs/findings.md)."""
    names = ("target-0", "drafter-0", "drafter-1")
    begun = [of_worker(at, "worker.start", name, role=name.split("-")[0]) for at, name in enumerate(names, start=3)]
    ends = [of_worker(at, "worker.end", name) for at, name in enumerate(over, start=9)]
    ending = Ending(int(signal.SIGSEGV), "exited", 1.0, 0.1)
    assert died(tmp_path, ending, READY, BEGUN, *begun, *ends) == (["crash"], f"the process ended by SIGSEGV{said}")


def test_the_events_of_a_death_are_read_as_often_as_those_of_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a million of them, and each reading takes seconds."""
    read: list[Path] = []

    def counted(folder: Path) -> Iterable[dict[str, Any]]:
        read.append(folder)
        return read_events(folder / "events.jsonl")

    monkeypatch.setattr("harness.control.rows._events", counted)
    counts = []
    for ending in (Ending(KILLED, "hang", 1.0, 0.1), Ending(int(signal.SIGSEGV), "exited", 1.0, 0.1)):
        died(tmp_path, ending, READY, BEGUN)
        counts.append(len(read))
        read.clear()
    assert counts == [2, 2]


def test_events_that_could_not_be_sorted_tell_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.control.rows.merge", full)
    (tmp_path / "events.bin").write_bytes(event_line(READY).encode())
    request = TrialRequest("t", Scenario(), 0, tmp_path)
    assert trial_row(request, Ending(0, "exited", 1.0, 0.1))["outcomes"] == ["setup_error"]
    (tmp_path / "events.bin").write_bytes((event_line(READY) + event_line(BEGUN)).encode())
    assert trial_row(request, Ending(0, "exited", 1.0, 0.1))["outcomes"] == ["crash"]
