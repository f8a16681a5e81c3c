"""A bisection that is stopped within its plans, by its budget or by Ctrl-C: no trial too many, and nothing learnt is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import FakeExecutor, make_row
from slots import Slots

from harness import cli
from harness.analysis.ladder import PlanResult
from harness.analysis.plan_questions import Ask
from harness.control import bisect as control
from harness.control import executors, plan_oracle
from harness.control.batches import Batch, Work, together
from harness.control.bisect_question import Question
from harness.control.bisect_trials import Budget
from harness.control.plan_answers import read_plans
from harness.control.plan_oracle import ReproducingOracle
from harness.control.request import Executor, Row, TrialRequest
from harness.core.scenario import Scenario
from harness.hazards import find

MATRIX = """\
schema = 1
[defaults]
drafters = 2
[axes]
lock = ["none", "per_call"]
steps = [2, 3]
"""
EACH = 3
"""Trials of a plan in a scenario: the free binding, and two of two drafters."""

Run = Callable[..., tuple[int, Any]]


def excluded(request: TrialRequest, **fields: Any) -> Row:
    """No plan comes about, and nothing fails."""
    told = {"order": "excluded", "reason": "a lock", "attempts": []}
    workers = {name: {"role": "drafter"} for name in ("drafter-0", "drafter-1")}
    return make_row(request, **({"schedule": told, "workers": workers} if "plan" in request.extra else {}), **fields)


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    fake = FakeExecutor(excluded)
    case = find("cudagraph-tls").case("pipeline")
    assert case is not None

    def oracle_for(
        question: Question, environment: object, executor: Executor, run_dir: Path, note: Callable[[str], None]
    ) -> ReproducingOracle:
        return ReproducingOracle(
            {"h": case}, question.contexts, question.pipeline, executor, run_dir, note=note, timeout_s=9
        )

    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: fake)
    monkeypatch.setattr(plan_oracle, "oracle_for", oracle_for)
    return fake


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MATRIX)

    def bisect(*arguments: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["bisect", "locks", *arguments, "--out", "run", "--json", "--no-portfolio"])
        return int(ended.value.code or 0), json.loads(capsys.readouterr().out)

    return bisect


def plan_trials(folder: Path) -> int:
    return len(list((folder / "run" / "plans").glob("*/trials/*")))


@pytest.mark.parametrize("most", [1, 2, EACH, EACH + 2])
def test_no_trial_of_a_plan_starts_beyond_max_trials(
    run: Run, executor: FakeExecutor, tmp_path: Path, most: int
) -> None:
    code, document = run("m.toml", "--max-trials", str(most))
    assert (code, document["stopped"]) == (3, f"--max-trials {most} reached")
    assert len(executor.ran) == document["trials_total"] == plan_trials(tmp_path) == most
    assert document["ladder"][0]["plan_trials"] == most
    assert document["open"] == ["none: tried by plans alone", "per_call: not tried"]
    code, again = run("--resume", "--max-trials", str(most))
    assert (again["trials_total"], again["stopped"], len(executor.ran)) == (most, document["stopped"], most)


def test_no_trial_of_a_plan_starts_beyond_max_minutes(
    run: Run, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial takes a minute here."""
    monkeypatch.setattr(
        control, "Budget", lambda trials, minutes: Budget(trials, minutes, clock=lambda: 60.0 * len(executor.ran))
    )
    code, document = run("m.toml", "--max-minutes", "2")
    assert (code, document["stopped"], len(executor.ran)) == (3, "--max-minutes 2 reached", 2)


def test_what_a_plan_said_of_a_scenario_is_not_asked_again(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    """Ctrl-C in the second trial of the second scenario."""

    def before(number: int) -> None:
        if len(executor.ran) == EACH + 1:
            raise KeyboardInterrupt

    executor.before = before
    code, document = run("m.toml")
    assert (code, document["stopped"]) == (3, "interrupted")
    assert len(executor.ran) == document["trials_total"] == EACH + 1
    kept = [(told.context, told.ending, told.trials) for told in read_plans(tmp_path / "run")]
    assert kept == [(0, "excluded", EACH), (1, "", 1)]
    executor.before = lambda number: None
    code, document = run("--resume", "--max-trials", str(2 * EACH + 1))
    assert len(executor.ran) == document["trials_total"] == 2 * EACH + 1, "its second scenario alone"
    assert document["ladder"][0]["plans"] == {"h": "excluded"}
    assert document["ladder"][0]["plan_trials"] == 2 * EACH + 1
    folders = sorted(path.name for path in (tmp_path / "run" / "plans").iterdir())
    assert [name.rpartition("--")[2] for name in folders] == ["0", "1", "1-2"]


def oracle_of(folder: Path, slots: Slots, *contexts: Scenario) -> ReproducingOracle:
    case = find("cudagraph-tls").case("pipeline")
    assert case is not None
    return ReproducingOracle({"h": case}, contexts, {}, slots, folder, note=lambda _: None, timeout_s=9)


def test_a_failure_is_told_though_the_budget_ends_its_plan(tmp_path: Path) -> None:
    """It is seen in the last trial that may start, while another one of the plan was refused already."""

    def outcome(request: TrialRequest) -> Row:
        return {**excluded(request), "outcome": "fx_error", "outcomes": ["fx_error"]} if last(request) else excluded(request)

    def last(request: TrialRequest) -> bool:
        return request.trial_id == "002-plan"

    kept: list[PlanResult] = []
    oracle = oracle_of(tmp_path, Slots(2, outcome), Scenario(drafters=2))
    [told] = oracle.ask([Ask("h", "per_call")], Budget(max_trials=2).starts(0), kept.append)
    assert (told.failed, told.ending, told.trials, kept) == (True, "undecided", 2, [])


def one_batch(folder: Path, size: int, enough: int) -> Work[int]:
    """Of `size` trials, of which no more are needed than `enough`."""
    done: list[Row] = []
    requests = [TrialRequest(f"{number}", Scenario(), 0, folder / f"{number}") for number in range(size)]
    yield Batch(requests, lambda _, row: done.append(row), lambda _: len(done) < enough)
    return len(done)


def test_a_work_that_lacks_a_trial_has_no_result_and_one_that_needs_it_no_more_has(tmp_path: Path) -> None:
    """The second job is offered trials while the first one's runs, which then is enough."""
    slots = Slots(2)
    works = {"a": one_batch(tmp_path / "a", 3, 1), "b": one_batch(tmp_path / "b", 2, 2)}
    assert dict(together(slots, works, Budget(max_trials=1).starts(0))) == {"a": 1}
    assert slots.started == ["a/0"]
    assert not (tmp_path / "b").exists(), "no folder without a trial"
