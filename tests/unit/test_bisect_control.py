"""`harness bisect` with an executor that makes its rows up: what is run, kept, resumed and answered."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_runs import FX_ERROR, FakeExecutor, make_row

from harness import cli
from harness.analysis.intervals import trials_for_safe
from harness.analysis.ladder import PlanResult
from harness.analysis.plan_questions import Ask
from harness.analysis.verdicts import Answer, Entry, Verdict
from harness.control import bisect as control
from harness.control import bisect_evidence, bisect_trials, executors, plan_oracle
from harness.control.plan_answers import PLANS
from harness.control.request import Row, TrialRequest
from harness.report.bisection import _said
from harness.report.counting import Progress

MATRIX = """\
schema = 1
[defaults]
timeout = 77
[axes]
lock = ["none", "per_forward", "first_step", "compile_gate"]
checkpoint = ["none", "reentrant"]
[pipeline]
hidden_size = 32
"""
LADDER_FIELDS = {"lock", "verdict", "trials", "failures", "startup_s", "tokens_per_s", "witness"}
AGREED = {"answer", "verdict", "ladder", "trials_total", "p_min", "confidence"}
"""The fields of `bisect locks --json` that others rely on."""

Run = Callable[..., tuple[int, Any, str]]


def fails_under(*locks: str) -> Callable[[TrialRequest], Row]:
    """Trials of these locks fail, every time, by an FX error."""

    def outcome(request: TrialRequest) -> Row:
        if request.scenario.lock in locks:
            return make_row(request, "fx_error", fx_errors=1, errors=[FX_ERROR], startup_s=None, tokens_per_s=None)
        return make_row(request)

    return outcome


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    fake = FakeExecutor(fails_under("none", "per_forward"))
    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: fake)
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: plan_oracle.NoPlans())
    return fake


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in an empty folder; exit code, document (or text without --json), standard error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MATRIX)

    def bisect(*arguments: str, json_output: bool = True, out: str | None = "run") -> tuple[int, Any, str]:
        more = ["--out", out] if out else []
        with pytest.raises(SystemExit) as ended:
            cli.main(["bisect", *arguments, *more, *(["--json"] if json_output else [])])
        said, err = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(said) if json_output and said else said, err

    return bisect


def entry(document: Any, lock: str) -> Any:
    return next(one for one in document["ladder"] if one["lock"] == lock)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_the_cheapest_safe_lock(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    code, document, err = run("locks", "checkpoint=reentrant")
    assert code == 0
    assert set(document) >= AGREED
    assert set(document["ladder"][0]) >= LADDER_FIELDS
    assert (document["answer"], document["verdict"], document["cheapest"]) == ("thread_local_fx", "safe", True)
    assert (document["p_min"], document["confidence"]) == (0.05, 0.95)
    none = entry(document, "none")
    assert (none["verdict"], none["trials"], none["failures"]) == ("unsafe", 1, 1)
    assert none["witness"]["label"] == "fx_error"
    assert none["witness"]["against"] == [{"worker": "drafter-0", "region": "mask"}]
    assert (tmp_path / "run" / none["witness"]["trial"]).is_dir()
    assert document["trials_total"] == len(executor.ran) == len(rows(tmp_path / "run"))
    assert "certifying thread_local_fx" in err
    assert executor.closed


def test_its_page_is_written_at_the_end_and_named(
    run: Run, executor: FakeExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run("locks", "checkpoint=reentrant", json_output=False)[1]
    assert "the report, for a browser: run/report.html" in said
    assert "harness explain run/trials/" in said
    assert "is safe" in (tmp_path / "run" / "report.html").read_text()

    def full(path: Path) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr("harness.report.html.write_report", full)
    code, document, err = run("locks", "--resume")
    assert (code, document["verdict"]) == (0, "safe"), "a full disk costs no answer"
    assert "no report: no space left on device" in err


def test_on_a_matrix_the_locks_are_its_own_and_safe_means_everywhere(
    run: Run, executor: FakeExecutor, tmp_path: Path
) -> None:
    def outcome(request: TrialRequest) -> Row:
        bad = request.scenario.lock in ("none", "per_forward")
        bad = bad or (request.scenario.lock == "first_step" and request.scenario.checkpoint == "reentrant")
        return fails_under(request.scenario.lock)(request) if bad else make_row(request)

    executor.outcome = outcome
    code, document, _ = run("locks", "m.toml")
    assert code == 0
    assert [one["lock"] for one in document["ladder"]] == ["none", "per_forward", "first_step", "compile_gate"]
    assert document["answer"] == "compile_gate"
    assert entry(document, "compile_gate")["certified"] == trials_for_safe()
    assert {row["scenario"]["checkpoint"] for row in rows(tmp_path / "run")} == {"none", "reentrant"}


def test_the_folder_is_a_run_folder(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    """`harness run --resume` and `harness report` read it; its matrix holds all that can be run."""
    from harness.core.matrix import load_matrix

    run("locks", "m.toml", "--no-portfolio")
    matrix = load_matrix(tmp_path / "run" / "matrix.toml")
    assert len(matrix.scenarios) == 8
    assert (matrix.timeout_s, matrix.pipeline) == (77, {"hidden_size": 32})
    ids = {scenario.id for scenario in matrix.scenarios}
    assert {row["scenario_id"] for row in rows(tmp_path / "run")} <= ids
    for row in rows(tmp_path / "run"):
        assert set(row["bisect"]) == {"purpose", "strategy", "context", "schedule", "alone"}
        assert row["bisect"]["alone"] is True, "one at a time"
        assert (tmp_path / "run" / "trials" / row["trial"]).is_dir()


def test_options_reach_the_trials(run: Run, executor: FakeExecutor) -> None:
    requests: list[TrialRequest] = []

    def outcome(request: TrialRequest) -> Row:
        requests.append(request)
        return make_row(request)

    executor.outcome = outcome
    run(
        "locks", "m.toml", "--only", "checkpoint=none", "--timeout", "9", "--locks", "none,every_step", "--p-min", "0.5"
    )
    assert {request.scenario.checkpoint for request in requests} == {"none"}
    assert {request.scenario.lock for request in requests} <= {"none", "every_step"}
    assert {request.timeout_s for request in requests} == {9}
    assert dict(requests[0].pipeline) == {"hidden_size": 32}


def test_schedules_of_the_portfolio_have_seeds_of_their_own_and_are_never_added_up(
    run: Run, executor: FakeExecutor, tmp_path: Path
) -> None:
    def outcome(request: TrialRequest) -> Row:
        provoked = request.scenario.schedule.endswith(":windows")
        return fails_under("none", "per_forward")(request) if provoked else make_row(request)

    executor.outcome = outcome
    _, document, _ = run("locks", "m.toml", "--only", "checkpoint=none")
    assert document["answer"] == "first_step"
    answer = entry(document, "first_step")
    assert (answer["schedule"], answer["certified"]) == ("delays:*:windows", trials_for_safe())
    assert answer["schedules"][""]["trials"] < answer["schedules"]["delays:*:windows"]["trials"]
    seeds = [row["scenario"]["schedule"] for row in rows(tmp_path / "run") if row["scenario"]["schedule"] != "none"]
    assert len(seeds) == len(set(seeds))
    text = " ".join(run("locks", "--resume", json_output=False)[1].split())
    assert f"{trials_for_safe()} fresh under delays:*:windows" in text
    assert "under delays:*:…: a schedule" in text


def test_no_portfolio_where_the_scenario_has_a_schedule(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    run("locks", "schedule=pct:1:3")
    assert {row["scenario"]["schedule"] for row in rows(tmp_path / "run")} == {"pct:1:3"}


@pytest.mark.parametrize(
    ("locks", "code", "verdict", "conclusion"),
    [
        ((), 0, "safe", "nothing to fix"),
        (("none", "per_forward", "first_step", "compile_gate"), 1, "unsafe", "no strategy here is safe"),
    ],
)
def test_the_other_two_answers(
    run: Run, executor: FakeExecutor, locks: tuple[str, ...], code: int, verdict: str, conclusion: str
) -> None:
    executor.outcome = fails_under(*locks)
    found, document, _ = run("locks", "m.toml")
    assert (found, document["verdict"], document["conclusion"]) == (code, verdict, conclusion)


@pytest.mark.parametrize("label", ["setup_error", "out_of_memory"])
def test_what_does_not_run_is_incomplete_and_exit_3(run: Run, executor: FakeExecutor, label: str) -> None:
    executor.outcome = lambda request: make_row(request, label, reason="no such model: gone/")
    code, document, _ = run("locks", "m.toml", "--only", "checkpoint=none")
    assert (code, document["verdict"], document["answer"]) == (3, "incomplete", None)
    assert "no such model: gone/" in document["conclusion"]
    assert all(one["verdict"] != "unsafe" for one in document["ladder"])
    assert len(executor.ran) == 3
    assert (
        run("locks", "m.toml", "--only", "checkpoint=none", json_output=False, out="again")[1].count("no such model")
        >= 1
    )


def test_a_lock_that_does_not_run_is_no_evidence_against_it(run: Run, executor: FakeExecutor) -> None:
    def outcome(request: TrialRequest) -> Row:
        if request.scenario.lock == "first_step":
            return make_row(request, "out_of_memory", reason="out of memory")
        return fails_under("none", "per_forward")(request)

    executor.outcome = outcome
    code, document, _ = run("locks", "m.toml", "--only", "checkpoint=none")
    assert (code, document["answer"]) == (0, "compile_gate")
    assert entry(document, "first_step")["verdict"] == "incomplete"


def test_what_cannot_run_here_is_skipped_before_a_process_is_started(run: Run, executor: FakeExecutor) -> None:
    code, document, _ = run("locks", "backend=inductor")
    assert (code, document["verdict"]) == (3, "incomplete")
    assert executor.ran == []
    assert "flex_attention" in document["conclusion"]


def test_more_memory_than_there_is_is_skipped_too(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MATRIX.replace("hidden_size = 32", "hidden_size = 1000000"))
    code, document, _ = run("locks", "m.toml")
    assert (code, document["verdict"], executor.ran) == (3, "incomplete", [])
    assert "devices=cpu needs at least" in document["conclusion"]


def test_max_trials(run: Run, executor: FakeExecutor) -> None:
    code, document, err = run("locks", "m.toml", "--max-trials", "10", "--jobs", "3")
    assert code == 3
    assert (document["verdict"], document["trials_total"]) == ("undecided", 10)
    assert document["stopped"] == "--max-trials 10 reached"
    assert document["open"]
    assert "10 trials to run" in err


def test_max_minutes(run: Run, executor: FakeExecutor) -> None:
    now = [0.0]
    budget = control.Budget(max_minutes=2.5, clock=lambda: now[0])
    now[0] = 60 * 2.4
    assert budget.spent(5) == ""
    now[0] = 60 * 2.5
    assert budget.spent(5) == "--max-minutes 2.5 reached"
    code, document, _ = run("locks", "m.toml", "--max-minutes", "1e-9")
    assert (code, document["verdict"], document["trials_total"]) == (3, "undecided", 0)
    assert document["stopped"] == "--max-minutes 1e-09 reached"


def test_stopped_and_resumed_is_as_good_as_never_stopped(run: Run, executor: FakeExecutor) -> None:
    _, whole, _ = run("locks", "m.toml", out="whole")
    executor.ran.clear()
    run("locks", "m.toml", "--max-trials", "7")
    run("locks", "--resume", "--max-trials", "20")
    code, resumed, _ = run("locks", "--resume")
    assert code == 0
    assert len(executor.ran) == len(set(executor.ran)) == whole["trials_total"] == resumed["trials_total"]
    for key in ("answer", "verdict", "ladder", "cheapest"):
        assert resumed[key] == whole[key]


def interrupt_at(place: int) -> Callable[[int], None]:
    count = [0]

    def before(number: int) -> None:
        count[0] += 1
        if count[0] == place:
            raise KeyboardInterrupt

    return before


def test_interrupted_anywhere_it_goes_on(run: Run, executor: FakeExecutor) -> None:
    """20 interrupts at random places, in two runs that are each resumed to their end."""
    _, whole, _ = run("locks", "m.toml", out="whole")
    dice = random.Random(3)
    for name in ("one", "two"):
        executor.ran.clear()
        first = True
        for _ in range(10):
            executor.before = interrupt_at(dice.randint(1, 15))
            code, document, _ = run("locks", *(["m.toml"] if first else ["--resume"]), out=name)
            first = False
            if code == 0:
                break
            assert (code, document["stopped"]) == (3, "interrupted")
        executor.before = lambda number: None
        code, document, _ = run("locks", "--resume", out=name)
        assert (code, document["answer"]) == (0, whole["answer"])
        assert len(executor.ran) == len(set(executor.ran)) == document["trials_total"]


class SideBySide(FakeExecutor):
    """All that it is given runs at once and ends from the last to the first; `cut`: how many are still running at Ctrl-C."""

    cut = 0

    def run(
        self, trials: Sequence[TrialRequest], on_start: Callable[[TrialRequest], object], on_row: Callable[[Row], None]
    ) -> None:
        running = [request for request in trials if on_start(request) is not False]
        for request in reversed(running):
            if len(running) > self.cut > 0 and running.index(request) < self.cut:
                on_row(make_row(request, "interrupted", startup_s=None, tokens_per_s=None))
                continue
            if not request.extra.get("reference"):
                self.ran.append(request.trial_id)
            on_row(make_row(request) if request.extra.get("reference") else self.outcome(request))
        if len(running) > self.cut > 0:
            self.cut = 0
            raise KeyboardInterrupt


def test_what_tells_the_cost_runs_alone_and_nothing_else_tells_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of six jobs, and of each scenario's reference, nothing may be under way beside a trial whose speed is compared."""
    at_once: list[tuple[int, set[str]]] = []

    class Counting(SideBySide):
        def run(
            self, trials: Sequence[TrialRequest], on_start: Callable[[TrialRequest], object], on_row: Callable[[Row], None]
        ) -> None:
            at_once.append((len(trials), {request.trial_id for request in trials}))
            super().run(trials, on_start, on_row)

    def outcome(request: TrialRequest) -> Row:
        if request.scenario.lock in ("none", "per_forward"):
            return fails_under("none", "per_forward")(request)
        beside = max(count for count, names in at_once if request.trial_id in names)
        fast = request.scenario.lock == "every_step" and beside > 1
        return make_row(request, startup_s=1.0, tokens_per_s=2000.0 if fast else 1000.0)

    fake = Counting(outcome)
    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: fake)
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: plan_oracle.NoPlans())
    code, document, _ = run("locks", "checkpoint=reentrant", "-j", "6")
    assert code == 0
    assert document["answer"] not in ("every_step", "process")
    alone = {row["trial"] for row in rows(tmp_path / "run") if row["bisect"]["alone"]}
    assert {row["bisect"]["purpose"] for row in rows(tmp_path / "run") if row["trial"] in alone} <= {"price", "compare"}
    assert len(alone) >= 5
    assert all(count == 1 for count, names in at_once if names & alone)
    assert entry(document, document["answer"])["tokens_per_s"] == 1000.0
    said = " ".join(run("locks", "--resume", "-j", "6", json_output=False)[1].split())
    assert "start, tok/s, wait: of trials that ran by themselves; of " in said
    assert "there are none, so the order of the list stands for their cost." in said
    one_by_one = " ".join(run("locks", "--resume", "-j", "1", json_output=False)[1].split())
    assert "of trials that ran by themselves" in one_by_one, "it is said of the rows, whatever this command's -j"
    older = next(row for row in rows(tmp_path / "run") if row["trial"] in alone)
    del older["bisect"]["alone"]
    assert not bisect_trials.result_of(older).alone, "rows of a release that did not say"


@pytest.mark.parametrize("what", ["locks", "regions"])
def test_of_trials_side_by_side_the_interrupted_are_made_up_for_and_none_is_run_twice(
    run: Run, monkeypatch: pytest.MonkeyPatch, what: str, tmp_path: Path
) -> None:
    """The last of a batch had ended, and earlier ones had not: that many rows are no number of the next trial."""
    fake = SideBySide(fails_under("none", "per_forward"))
    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: fake)
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: plan_oracle.NoPlans())
    fake.cut = 2
    code, document, _ = run(what, "checkpoint=reentrant", "-j", "6")
    for cut in (1, 3, 2):
        assert (code, document["stopped"]) == (3, "interrupted")
        fake.cut = cut
        code, document, _ = run(what, "--resume", "-j", "6")
    fake.cut = 0
    if document["stopped"]:
        code, document, _ = run(what, "--resume", "-j", "3")
    assert code == 0
    assert len(fake.ran) == len(set(fake.ran)) == document["trials_total"]
    told = [(row["scenario"]["lock"], row["scenario"]["schedule"]) for row in rows(tmp_path / "run") if row["outcome"] == "ok"]
    provoked = [pair for pair in told if pair[1] != "none"]
    assert len(provoked) == len(set(provoked)), "each has a seed of its own"


def test_a_finished_bisection_resumes_to_the_same_answer_without_a_trial(run: Run, executor: FakeExecutor) -> None:
    _, before, _ = run("locks", "m.toml")
    executor.ran.clear()
    _, after, _ = run("locks", "--resume")
    assert executor.ran == []
    assert after["ladder"] == before["ladder"]


def test_a_run_does_not_go_on_in_its_folder_and_rows_of_one_that_did_say_nothing(
    run: Run, executor: FakeExecutor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, before, _ = run("locks", "checkpoint=reentrant")
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--resume", "--out", "run"])
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (2, 1)
    assert "run is a bisection's folder" in said
    assert "harness bisect locks --resume --out run" in said
    question = json.loads((tmp_path / "run" / "bisect.json").read_text())
    (tmp_path / "run" / "bisect.json").write_text(json.dumps({**question, "what": "regions"}))
    with pytest.raises(SystemExit):
        cli.main(["run", "--resume", "--out", "run"])
    assert "harness bisect regions --resume --out run" in capsys.readouterr().err
    (tmp_path / "run" / "bisect.json").write_text(json.dumps(question))
    stray = {name: value for name, value in rows(tmp_path / "run")[0].items() if name != "bisect"}
    with open(tmp_path / "run" / "results.jsonl", "a") as stream:
        stream.write(json.dumps({**stray, "trial": "lock=none--r9", "repeat": 9}) + "\n")
    assert run("locks", "--resume")[1]["ladder"] == before["ladder"]


def test_thorough_can_be_asked_for_later(run: Run, executor: FakeExecutor) -> None:
    """first_step is safe too, but was not settled, as failures were rare."""
    count = [0]

    def outcome(request: TrialRequest) -> Row:
        count[0] += request.scenario.lock == "none"
        return fails_under("none")(request) if request.scenario.lock == "none" and count[0] == 15 else make_row(request)

    executor.outcome = outcome
    _, before, _ = run("locks", "m.toml", "--only", "checkpoint=none", "--no-portfolio")
    _, after, _ = run("locks", "--resume", "--thorough")
    assert before["answer"] in ("per_forward", "first_step", "compile_gate")
    assert after["answer"] == "per_forward"
    assert after["cheapest"]


class Oracle:
    """Plans of one hazard: it comes about under `none` and `per_forward`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.batches: list[int] = []
        self.stop_at = ""

    def hazards(self) -> tuple[str, ...]:
        return ("fx-flag-collision",)

    def by_locks(self) -> tuple[str, ...]:
        return ()

    def ask(self, asks: Sequence[Ask], *_: object) -> Iterator[PlanResult]:
        self.batches.append(len(asks))
        for ask in asks:
            if ask.strategy == self.stop_at:
                raise KeyboardInterrupt
            self.asked.append(ask.strategy)
            if ask.strategy in ("none", "per_forward"):
                witness = {"hazard": ask.hazard, "trial": "plans/x"}
                yield PlanResult(ask.hazard, ask.strategy, "reproduced", witness=witness, trials=2)
            else:
                yield PlanResult(ask.hazard, ask.strategy, "excluded", reason="the strategy lock stands against it")


def test_plans_are_carried_out_first_and_kept(
    run: Run, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    oracle = Oracle()
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: oracle)
    _, document, _ = run("locks", "m.toml", "--only", "checkpoint=none")
    assert oracle.asked == ["none", "per_forward", "first_step", "compile_gate"]
    assert document["answer"] == "first_step"
    assert entry(document, "none")["witness"]["hazard"] == "fx-flag-collision"
    none, first_step = entry(document, "none"), entry(document, "first_step")
    assert (none["trials"], none["plan_trials"], none["plan_failures"]) == (0, 2, 1)
    assert (first_step["plan_trials"], first_step["plan_failures"]) == (1, 0)
    assert entry(document, "first_step")["plans"] == {"fx-flag-collision": "excluded"}
    assert all("lock=first_step" in name or "lock=compile_gate" in name for name in executor.ran)
    assert document["trials_total"] == len(executor.ran) + 6
    oracle.asked.clear()
    _, again, _ = run("locks", "--resume")
    assert oracle.asked == []
    assert again["ladder"] == document["ladder"]
    text = run("locks", "--resume", json_output=False)[1]
    assert "fx-flag-collision, by plan: 1 of 1 hazards' plans reproduced" in " ".join(text.split())
    assert "by plan: threads were held until the harmful order came about" in text
    assert "in a plan:" not in text
    assert "6 of the trials were of plans." in text
    assert "1/2" not in text, "a count of plans' trials reads as one of failures"
    assert "0/0" not in text


def test_plans_of_several_strategies_run_at_the_same_time_and_each_answer_is_kept(
    run: Run, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """compile_gate's answer depends on no other's; what was answered before a Ctrl-C is not asked again."""
    oracle = Oracle()
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: oracle)
    oracle.stop_at = "compile_gate"
    code, _, _ = run("locks", "m.toml", "--only", "checkpoint=none", "-j", "2")
    assert (code, oracle.asked, oracle.batches) == (3, ["none", "per_forward"], [1, 2])
    assert len((tmp_path / "run" / PLANS).read_text().splitlines()) == 2
    oracle.stop_at = ""
    _, document, _ = run("locks", "--resume", "-j", "2")
    assert oracle.asked == ["none", "per_forward", "first_step", "compile_gate"]
    assert oracle.batches == [1, 2, 2]
    assert document["answer"] == "first_step"


def test_progress_counts_plans_before_there_is_a_trial(
    run: Run, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: Oracle())
    told = Progress.plans

    def plans(self: Progress, done: int, asked: int) -> None:
        told(self, done, asked)
        said.append(self.counts())

    monkeypatch.setattr(Progress, "plans", plans)
    run("locks", "m.toml", "--only", "checkpoint=none", "-j", "2", "--quiet")
    assert said[0] == "0 of 1 plan carried out"
    assert said[-1] == "4 of 4 plans carried out"
    progress = Progress()
    progress.plans(4, 4)
    progress.begin(9, 0)
    assert progress.counts() == "0/9 trials, 0 failed"


def standing(lock: str, verdict: Verdict, rate: float, between: tuple[float, float] | None, trials: int) -> Entry:
    return Entry(
        lock, verdict, trials, 0, 0.22, trials, "", 1.0, rate, None, None, between, None, "", {"": {}}, {}, None, ""
    )


def test_a_faster_strategy_that_is_not_certified_is_named_with_its_counts() -> None:
    """That a cheaper one is unsafe by design says nothing of one that was measured faster."""
    entries = (
        standing("none", "unsafe", 990.0, (980.0, 999.0), 9),
        standing("each:loss", "undecided", 812.0, (800.0, 820.0), 12),
        standing("first_step", "undecided", 705.0, None, 12),
        standing("compile_gate", "safe", 700.0, (690.0, 710.0), 59),
        standing("every_step", "undecided", 100.0, (90.0, 110.0), 9),
    )
    answer = Answer("compile_gate", "safe", "compile_gate is safe", True, entries, 99, 0.05, 0.95, {}, (), "")
    (line,) = [line.plain for line in _said(answer, 1) if "Faster" in line.plain]
    assert line == (
        "Faster by the median, and not certified: each:loss, 812 against 700 tok/s, 0/12 failed (at most 22 %); "
        "first_step, 705 against 700 tok/s (not told apart by their intervals), 0/12 failed (at most 22 %)."
    )


GATE_14 = standing("compile_gate", "undecided", 700.0, None, 14)
UNTRIED = standing("per_call", "undecided", 700.0, None, 0)


@pytest.mark.parametrize(
    ("locks", "said"),
    [
        (
            [UNTRIED, GATE_14, standing("warm_gate", "undecided", 700.0, None, 9)],
            ". compile_gate is undecided (0/14 failed, at most 22 %); --locks without process asks which lock is safe.",
        ),
        ([GATE_14, standing("every_step", "safe", 100.0, None, 59)], ". every_step is safe (0/59 failed, at most 22 %)."),
        ([UNTRIED], ", and none that may be safe was tried; --locks without process asks which is."),
        ([standing("per_call", "unsafe", 700.0, None, 14)], ", and all that were asked about are unsafe."),
        ([], ", and none was asked about."),
    ],
)
def test_an_answer_that_is_no_lock_says_what_is_left_of_the_locks(locks: list[Entry], said: str) -> None:
    entries = (
        standing("none", "undecided", 990.0, None, 99),
        standing("thread_local_fx", "undecided", 990.0, None, 99),
        *locks,
        standing("process", "safe", 900.0, None, 59),
    )
    answer = Answer("process", "safe", "process is safe", True, entries, 99, 0.05, 0.95, {}, (), "")
    assert f"It is no lock{said}" in [line.plain for line in _said(answer, 1)]


def test_regions(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    def outcome(request: TrialRequest) -> Row:
        held = set(request.scenario.lock.removeprefix("each:").split("+"))
        enough = "backward" in held and held & {"forward", "attention"}
        return make_row(request) if enough else fails_under(request.scenario.lock)(request)

    executor.outcome = outcome
    code, document, _ = run("regions", "checkpoint=reentrant")
    assert (code, document["answer"], document["regions"]) == (0, "each:attention+backward", ["attention", "backward"])
    assert document["verdict"] == "safe"
    tested = {one["lock"]: one["verdict"] for one in document["tested"]}
    assert tested["each:attention"] == "unsafe"
    assert "unsafe" in (tested.get("each:backward"), tested.get("each:loss+backward")), "or a larger one that failed"
    executor.ran.clear()
    assert run("regions", "--resume")[1]["tested"] == document["tested"]
    assert executor.ran == []


def test_regions_stopped_and_resumed(run: Run, executor: FakeExecutor) -> None:
    executor.outcome = fails_under("none")
    code, document, _ = run("regions", "steps=2", "--max-trials", "5", "--no-portfolio")
    assert (code, document["verdict"]) == (3, "undecided")
    assert document["open"] == ["each:mask+forward+loss+backward: 0/4 failed (at most 53 %)"]
    code, document, _ = run("regions", "--resume")
    assert (code, document["verdict"]) == (0, "safe")


def test_both_print_an_answer_a_table_and_what_to_paste(run: Run, executor: FakeExecutor) -> None:
    _, text, _ = run("locks", "m.toml", "--only", "checkpoint=none", "--no-portfolio", json_output=False)
    assert "Answer: first_step is safe" in text
    assert "0 of 59 fresh trials failed" in text
    assert 'make_strategy("first_step"' in text
    assert "fx_error: drafter-1 in attention, against" in " ".join(text.split())
    table = text[: text.index("To paste")].splitlines()
    assert max(len(line) for line in table if "drafter" in line or " safe " in line) <= 110
    executor.outcome = fails_under("none")
    _, text, _ = run("regions", "steps=2", json_output=False, out="regions")
    assert "held each by itself" in text
    _, text, _ = run("locks", "m.toml", "--max-trials", "3", json_output=False, out="short")
    assert "Stopped: --max-trials 3 reached." in text
    assert "harness bisect locks --resume --out short\n" in text
    _, text, _ = run("locks", "m.toml", "--max-trials", "3", "-j", "2", json_output=False, out="two")
    assert "harness bisect locks --resume --out two -j 2\n" in text
    _, text, _ = run("locks", "--resume", "--max-trials", "6", "-j", "3", json_output=False, out="two")
    assert "harness bisect locks --resume --out two -j 3\n" in text, "as this part ran, not as the first one"


def test_a_witness_has_the_hazard_behind_it_where_its_trial_tells_that(
    run: Run, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def known_as(folder: Path, *, certain: bool = False) -> str:
        assert certain
        asked.append(folder)
        return "dense-by-thread-config" if "every_step" not in folder.name else ""

    monkeypatch.setattr(bisect_evidence, "known_as", known_as)
    executor.outcome = lambda request: make_row(request, "dense")
    words = ("checkpoint=reentrant", "--locks", "compile_gate,every_step", "--no-portfolio")
    _, document, _ = run("locks", *words)
    found = {entry["lock"]: (entry["witness"] or {}).get("known_as") for entry in document["ladder"]}
    assert found == {"compile_gate": "dense-by-thread-config", "every_step": None}
    assert all((folder / "..").resolve().name == "trials" for folder in asked)
    text = " ".join(run("locks", *words, json_output=False, out="again")[1].split())
    assert "dense (dense-by-thread-config)" in text
    asked.clear()
    executor.outcome = lambda request: make_row(request, "numerics")
    run("locks", *words, out="numbers")
    assert not asked, "what a probe saw beside it need not be why"
