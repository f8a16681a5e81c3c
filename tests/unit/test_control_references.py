"""References and warm caches: made once, kept, never counted."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.control.caches import PrimedExecutor, WarmCaches, begin_with
from harness.control.references import References
from harness.control.request import Row, TrialRequest
from harness.core.errors import RunFolderError
from harness.core.scenario import Scenario

LOSSES = [5.0, 4.0]


class Fake:
    """Ends every trial at once, with the given outcome and losses."""

    def __init__(self, outcome: str = "ok") -> None:
        self.outcome = outcome
        self.ran: list[TrialRequest] = []

    def run(
        self,
        trials: Sequence[TrialRequest],
        on_start: Callable[[TrialRequest], None],
        on_row: Callable[[Row], None],
    ) -> None:
        for request in trials:
            self.ran.append(request)
            on_start(request)
            document = {"trial": request.trial_id, "outcome": self.outcome, "reason": "why", "workers": workers(LOSSES)}
            (request.folder / "result.json").write_text(json.dumps(document))
            on_row(document)

    def close(self) -> None:
        pass


def workers(losses: Sequence[float | None]) -> dict[str, Any]:
    return {"drafter-0": {"role": "drafter", "losses": list(losses)}}


def request(folder: Path, name: str = "t", **axes: Any) -> TrialRequest:
    return TrialRequest(name, Scenario(**axes), 0, folder / name)


def row(references: References, of: TrialRequest, losses: Sequence[float | None], outcome: str = "ok") -> Row:
    made: Row = {
        "trial": of.trial_id,
        "scenario": of.scenario.to_dict(),
        "outcome": outcome,
        "outcomes": [outcome],
        "reason": "",
        "workers": workers(losses),
        "reference": references.key_of(of),
    }
    references.judge(made)
    return made


def test_one_reference_serves_all_locks_and_is_run_once(tmp_path: Path) -> None:
    executor, references = Fake(), References(tmp_path, "float32")
    requests = [request(tmp_path, lock, lock=lock) for lock in ("none", "first_step", "compile_gate")]
    references.prepare(references.firsts(requests), executor)
    references.prepare(references.firsts(requests), executor)
    (ran,) = executor.ran
    assert ran.extra == {"reference": True}
    assert not ran.probes
    assert all(row(references, r, LOSSES)["outcomes"] == ["ok"] for r in requests)


def test_other_losses_are_numerics_and_are_named(tmp_path: Path) -> None:
    references = References(tmp_path, "float32")
    trial = request(tmp_path)
    references.prepare(references.firsts([trial]), Fake())
    made = row(references, trial, [5.0, 4.1])
    assert made["outcomes"] == ["numerics"]
    assert made["reason"].startswith("drafter-0, step 1: loss 4.1, reference 4")
    assert row(references, trial, [5.0, 4.1], "fx_error")["outcomes"] == ["fx_error", "numerics"], "after the cause"


def test_a_reference_that_failed_says_nothing_of_the_trials(tmp_path: Path) -> None:
    references = References(tmp_path, "float32")
    trial = request(tmp_path)
    references.prepare(references.firsts([trial]), Fake("out_of_memory"))
    made = row(references, trial, [1.0, 1.0])
    assert made["outcomes"] == ["ok"]
    assert "the reference itself ended as out_of_memory" in made["oracles"]["numerics"]


@pytest.mark.parametrize("losses", [[], [None], [None, 4.0]])
def test_where_no_loss_is_common_nothing_was_compared(tmp_path: Path, losses: list[float | None]) -> None:
    """A deadlock before the first step agrees with nothing: it is not called `ok`."""
    references = References(tmp_path, "float32")
    trial = request(tmp_path)
    references.prepare(references.firsts([trial]), Fake())
    made = row(references, trial, losses, "deadlock")
    assert made["oracles"] == {"numerics": "unavailable: no loss to compare"}
    assert made["outcomes"] == ["deadlock"]
    assert row(references, trial, [5.0, None], "deadlock")["oracles"] == {"numerics": "ok"}, "one loss is enough"


def test_a_resumed_run_reads_what_is_there(tmp_path: Path) -> None:
    trial = request(tmp_path)
    first = References(tmp_path, "float32")
    first.prepare(first.firsts([trial]), Fake())
    executor, again = Fake(), References(tmp_path, "float32")
    again.prepare(again.firsts([trial]), executor)
    assert executor.ran == []
    assert row(again, trial, [5.0, 9.0])["outcomes"] == ["numerics"]


def test_warm_caches_are_primed_once_for_all_locks_of_the_pipeline(tmp_path: Path) -> None:
    executor, caches = Fake(), WarmCaches(tmp_path)
    requests = [
        *(request(tmp_path, f"w{n}", cache="warm") for n in range(2)),
        request(tmp_path, "w2", cache="warm", lock="compile_gate", lock_owner="thread"),
        request(tmp_path, "cold"),
    ]
    caches.prime(requests, executor)
    WarmCaches(tmp_path).prime(requests, executor)
    (primer,) = executor.ran
    assert primer.scenario == Scenario(cache="warm", lock="every_step"), "under which no compile fails"
    used = [caches.use(r) for r in requests]
    assert [r.extra.get("cache_from") for r in used] == [primer.extra["cache_dir"]] * 3 + [None]
    assert not any("cache_dir" in r.extra for r in used), "each has caches of its own"


@pytest.mark.parametrize("axes", [{"workload": "harness.workloads.trainer:trainer"}, {"drafters": 5}])
def test_who_compiles_something_else_is_primed_apart(tmp_path: Path, axes: dict[str, Any]) -> None:
    executor, caches = Fake(), WarmCaches(tmp_path)
    requests = [request(tmp_path, "w0", cache="warm", **axes), request(tmp_path, "w1", cache="warm")]
    caches.prime(requests, executor)
    assert len({primer.extra["cache_dir"] for primer in executor.ran}) == 2
    own = "workload" in axes  # it may hang under another lock
    assert executor.ran[0].scenario.lock == ("none" if own else "every_step")


def test_scenarios_that_other_processes_run_are_primed_apart(tmp_path: Path) -> None:
    executor = Fake()
    requests = [request(tmp_path, lock, cache="warm", lock=lock) for lock in ("none", "first_step")]
    WarmCaches(tmp_path, apart=True).prime(requests, executor)
    assert [primer.scenario.lock for primer in executor.ran] == ["none", "first_step"]


def test_a_trial_begins_with_a_copy_of_what_was_filled_and_leaves_that_as_it_is(tmp_path: Path) -> None:
    caches = WarmCaches(tmp_path)
    trial = caches.use(request(tmp_path, "w", cache="warm"))
    filled = Path(trial.extra["cache_from"])
    assert begin_with(trial).name == "cache", "a priming trial that failed has left nothing"
    (filled / "inductor").mkdir(parents=True)
    (filled / "inductor" / "kernel").write_text("compiled")
    own = begin_with(trial)
    assert own.parent == trial.folder.resolve()
    assert (own / "inductor" / "kernel").read_text() == "compiled"
    (own / "inductor" / "another").touch()
    assert [path.name for path in (filled / "inductor").iterdir()] == ["kernel"]


def test_trials_outside_of_a_run_are_primed_without_their_schedule(tmp_path: Path) -> None:
    """Orders of a search or plans of a case: their caches are filled once, whatever the folder of the trial they came of."""
    asked = request(tmp_path, "a", cache="warm", schedule="directed")
    asked = dataclasses.replace(asked, extra={"plan": {}, "cache_from": str(tmp_path / "moved")})
    cold = request(tmp_path, "cold")
    for folder in (asked.folder, cold.folder):
        folder.mkdir()
    executor, rows = Fake(), list[Row]()
    for _ in range(2):
        PrimedExecutor(executor, tmp_path).run([asked, cold], lambda _: None, rows.append)
    primer, first, other, *again = executor.ran
    assert primer.scenario == Scenario(cache="warm", lock="every_step")
    assert "plan" not in primer.extra
    assert first.extra == {"plan": {}, "cache_from": primer.extra["cache_dir"]}
    assert other == cold
    assert again == [first, other], "once"
    assert [row["trial"] for row in rows] == ["a", "cold"] * 2, "of the priming trial nobody is told"


def test_a_replay_begins_with_the_caches_of_its_run_while_they_are_there(tmp_path: Path) -> None:
    asked = dataclasses.replace(request(tmp_path, "a", cache="warm"), extra={"cache_from": str(tmp_path / "filled")})
    for folder in (asked.folder, tmp_path / "filled"):
        folder.mkdir()
    executor = Fake()
    PrimedExecutor(executor, tmp_path).run([asked], lambda _: None, lambda _: None)
    assert executor.ran == [asked]


def test_where_priming_for_all_locks_fails_each_is_primed_by_itself(tmp_path: Path) -> None:
    """As its own trials fail, so does its priming trial: it has compiled what they do."""
    requests = [request(tmp_path, lock, cache="warm", lock=lock) for lock in ("none", "first_step")]
    executor = Fake("hang")
    WarmCaches(tmp_path).prime(requests, executor)
    assert [primer.scenario.lock for primer in executor.ran] == ["every_step", "none", "first_step"]
    again = Fake()
    WarmCaches(tmp_path).prime(requests, again)
    assert again.ran == []
    begun = [WarmCaches(tmp_path).use(one).extra["cache_from"] for one in requests]
    assert begun == [primer.extra["cache_dir"] for primer in executor.ran[1:]]


@pytest.mark.parametrize("told", [{"cudagraphs": "trees", "devices": "cuda:0"}, {"dynamic": "auto"}])
def test_no_filling_is_shared_where_the_lock_decides_what_is_compiled(tmp_path: Path, told: dict[str, str]) -> None:
    pipeline = {name: value for name, value in told.items() if name == "dynamic"}
    axes = {name: value for name, value in told.items() if name != "dynamic"}
    asked = dataclasses.replace(request(tmp_path, cache="warm", **axes), pipeline=pipeline)
    executor = Fake()
    WarmCaches(tmp_path).prime([asked], executor)
    assert [primer.scenario.lock for primer in executor.ran] == ["none"]


def test_a_mark_without_caches_is_of_an_older_run_and_they_are_filled_anew(tmp_path: Path) -> None:
    folder = tmp_path / "caches" / Scenario(cache="warm", lock="every_step").id
    folder.mkdir(parents=True)
    (folder / "primed").touch()
    executor = Fake()
    WarmCaches(tmp_path).prime([request(tmp_path, cache="warm")], executor)
    assert len(executor.ran) == 1


def test_no_room_for_a_copy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = WarmCaches(tmp_path).use(request(tmp_path, cache="warm"))
    Path(trial.extra["cache_from"]).mkdir(parents=True)

    def full(source: str, target: Path, **_: Any) -> None:
        raise shutil.Error([(source, str(target), "[Errno 28] No space left on device")] * 3)

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(RunFolderError, match=r"cannot be copied there: \[Errno 28\] No space left on device; make room"):
        begin_with(trial)


def test_a_half_filled_cache_is_filled_anew(tmp_path: Path) -> None:
    half = tmp_path / "caches" / Scenario(cache="warm", lock="every_step").id / "cache"
    half.mkdir(parents=True)
    (half / "torn").touch()
    WarmCaches(tmp_path).prime([request(tmp_path, cache="warm")], Fake())
    assert not (half / "torn").exists()
