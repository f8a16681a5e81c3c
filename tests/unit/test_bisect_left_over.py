"""`harness bisect --resume` after a stop that found trials without a row: none is lost, and each is what it was when it ran."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import make_row
from places import Killed, Places, is_reference, loses, references_last

from harness import cli
from harness.control import executors, plan_oracle
from harness.control.request import Row, TrialRequest

Bisect = Callable[..., dict[str, Any]]
ALONE_S, BESIDE_S = 1.0, 30.0


class Machine:
    """Runs trials for all parts of one bisection; a trial beside others takes longer until it is warm.

    `wrong`: which trial, from 1, loses 9.0 where its reference has 4.0; `stop`: raised once a second reference runs.
    """

    def __init__(self, wrong: int) -> None:
        self.wrong, self.stop, self.trials = wrong, None, 0
        self.beside: Counter[str] = Counter()
        self.wrong_one = ""
        self.ended: list[str] = []

    def places(self, jobs: int) -> Places:
        return Places(jobs, self._pick, self._outcome)

    def _pick(self, running: list[TrialRequest]) -> TrialRequest:
        for request in running:
            self.beside[request.trial_id] = max(self.beside[request.trial_id], len(running))
        if self.stop and any("-again" in request.trial_id for request in running):
            raise self.stop
        return references_last(running)

    def _outcome(self, request: TrialRequest) -> Row:
        if is_reference(request):
            return make_row(request, workers=loses(4.0))
        self.trials += 1
        self.ended.append(request.trial_id)
        if request.scenario.lock in ("none", "per_forward"):
            return make_row(request, "fx_error", workers=loses(4.0), startup_s=None, tokens_per_s=None)
        if self.trials == self.wrong:
            self.wrong_one = request.trial_id
        startup_s = ALONE_S if self.beside[request.trial_id] == 1 else BESIDE_S
        return make_row(request, workers=loses(9.0 if self.trials == self.wrong else 4.0), startup_s=startup_s)


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bisect:
    """One command of a bisection in `run`; its document, {} where it was killed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: plan_oracle.NoPlans())

    def run(machine: Machine, jobs: int, *more: str) -> dict[str, Any]:
        monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: machine.places(jobs))
        with pytest.raises((SystemExit, Killed)):
            cli.main(["bisect", "locks", *more, "--out", "run", "--json", "-j", str(jobs)])
        said = capsys.readouterr().out
        return json.loads(said) if said else {}

    return run


def rows() -> list[Row]:
    return [json.loads(line) for line in Path("run", "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("jobs", [6, 1])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, Killed])
@pytest.mark.parametrize("wrong", [12, 13, 50])
def test_a_trial_in_doubt_when_it_was_stopped_is_judged_as_what_it_ran_as(
    part: Bisect, wrong: int, stop: type[BaseException], jobs: int
) -> None:
    """Twelve: of a strategy that the search never asks for again. It was lost, a failure, and the others became trials
    that had run alone because the one that asked for them again would have.
    """
    machine = Machine(wrong)
    machine.stop = stop
    part(machine, 6, "checkpoint=reentrant")
    machine.stop = None
    stopped = machine.ended[:]
    assert machine.wrong_one in stopped
    document = part(machine, jobs, "--resume")
    told = {row["trial"]: row for row in rows() if row["outcome"] != "interrupted"}
    assert set(stopped) <= set(told)
    assert len(machine.ended) == len(set(machine.ended)) == len(told)
    assert [name for name, row in told.items() if "numerics" in row["outcomes"]] == [machine.wrong_one]
    lock = told[machine.wrong_one]["scenario"]["lock"]
    assert {entry["lock"]: entry["verdict"] for entry in document["ladder"]}[lock] == "unsafe"
    for name, row in told.items():
        assert not (row["bisect"]["alone"] and machine.beside[name] > 1), name


def test_rows_of_an_older_release_tell_no_cost(part: Bisect) -> None:
    """They do not say whether they ran alone, and the folder only how many jobs its first part had."""
    machine = Machine(0)
    before = part(machine, 1, "checkpoint=reentrant")
    path = Path("run", "results.jsonl")
    older = rows()
    for row in older:
        del row["bisect"]["alone"]
    path.write_text("".join(json.dumps(row) + "\n" for row in older))
    after = part(machine, 6, "--resume")
    assert before["answer"] == after["answer"]
    assert len(machine.ended) > len(older), "its cost is measured again"
    assert (before["beside"], after["beside"]) == (False, True)


@pytest.mark.parametrize("damaged", [[], {}, {"purpose": "explore"}, {"context": "x"}, None])
def test_of_a_trial_whose_spec_is_damaged_nothing_is_taken(part: Bisect, damaged: Any) -> None:
    machine = Machine(12)
    machine.stop = Killed
    part(machine, 6, "checkpoint=reentrant")
    machine.stop = None
    spec = Path("run", "trials", machine.wrong_one, "spec.json")
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "extra": {"bisect": damaged}}))
    assert part(machine, 6, "--resume")["verdict"] == "safe"
    assert machine.wrong_one not in {row["trial"] for row in rows()}


def test_versions_that_are_not_run_again_have_their_rows_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2.10 is unsafe by a trial that failed at once, when others of its batch wait for the second run of their reference."""
    began: list[str] = []
    stop: list[type[BaseException]] = [Killed]

    def pick(running: list[TrialRequest]) -> TrialRequest:
        if stop and any("-again" in request.trial_id for request in running):
            raise stop.pop()
        return references_last(running)

    def outcome(request: TrialRequest) -> Row:
        if is_reference(request):
            return make_row(request, workers=loses(4.0))
        began.append(request.trial_id)
        if request.repeat == 2:
            return make_row(request, "fx_error", workers=loses(4.0), startup_s=None, tokens_per_s=None)
        old = "2.10" in str(request.folder)
        return make_row(request, workers=loses(9.0 if old and request.repeat < 2 else 4.0))

    def environment(python: str, *_: Any) -> dict[str, Any]:
        return {"executable": python, "torch": {"a": "2.10.0", "b": "2.13.0"}[python], "options": {}, "python": "3.11.7"}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: Places(jobs, pick, outcome))
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: plan_oracle.NoPlans())
    monkeypatch.setattr("harness.control.bisect_torch.environment_of", environment)
    words = ["bisect", "torch", "checkpoint=none", "--python", "a", "--python", "b", "--out", "run", "--json", "-j", "3"]
    with pytest.raises(Killed):
        cli.main(words)
    with pytest.raises(SystemExit):
        cli.main(["bisect", "torch", "--resume", "--out", "run", "--json", "-j", "3"])
    old = json.loads(capsys.readouterr().out)["versions"][0]
    told = [json.loads(line) for line in Path("run", "2.10.0", "results.jsonl").read_text().splitlines()]
    assert sorted(row["repeat"] for row in told if row["outcome"] != "interrupted") == [0, 1, 2]
    assert (old["trials"], old["failures"]) == (3, 3)
