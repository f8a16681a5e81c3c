"""`harness bisect`: bad input is one clear line, and nothing is half-written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import MATRIX, FakeExecutor
from fake_versions import Versions

from harness import cli
from harness.control import executors, plan_oracle
from harness.control.bisect_question import Asked, Question, make_question, parse_scenario
from harness.core.errors import UserError
from harness.core.scenario import Scenario

Fails = Callable[..., str]


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fails:
    """Run with bad arguments in a folder with m.toml; the one line that is said, after `error: `."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MATRIX)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main(["bisect", *arguments])
        out, err = capsys.readouterr()
        assert ended.value.code == 2
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert not (tmp_path / "reports").exists(), "nothing is half-written"
        return err.removeprefix("error: ")

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["locks, regions, torch"]),
        (["lock"], ["lock", "locks"]),
        (["locks", "m.toml", "--p-min", "0"], ["--p-min 0", "between 0 and 1"]),
        (["locks", "m.toml", "--p-min", "1"], ["--p-min 1", "between 0 and 1"]),
        (["locks", "m.toml", "--p-min", "nan"], ["--p-min nan", "between 0 and 1"]),
        (["locks", "m.toml", "--alpha", "1.5"], ["--alpha 1.5", "between 0 and 1"]),
        (["locks", "m.toml", "--alpha", "-0.1"], ["--alpha -0.1"]),
        (["locks", "m.toml", "--p-min", "0.0001"], ["--p-min 0.0001", "trials"]),
        (["locks", "m.toml", "--locks", ""], ["no lock strategy is left"]),
        (["locks", "m.toml", "--locks", "none,frist_step"], ["frist_step", 'did you mean "first_step"']),
        (["locks", "m.toml", "--locks", "first_step,span:mask..backward"], ["one and the same"]),
        (["locks", "m.toml", "--locks", "none,none"], ["named twice"]),
        (["locks", "m.toml", "--only", "lock=every_step"], ["matches no scenario"]),
        (["locks", "nowhere.toml"], ["nowhere.toml"]),
        (["locks", "chekpoint=none"], ["chekpoint", 'did you mean "checkpoint"']),
        (["locks", "checkpoint=nothing"], ["checkpoint", "nothing"]),
        (["locks", "steps=many"], ["steps", "many", "integer"]),
        (["locks", "checkpoint=none,checkpoint=reentrant"], ["checkpoint", "twice"]),
        (["locks", "checkpoint=none,rentrant"], ["rentrant", "axis=value"]),
        (["locks", "schedule=dealys:1"], ["dealys", "delays"]),
        (["locks", "checkpoint=none", "--only", "lock=none"], ["--only", "matrix"]),
        (["locks", "m.toml", "--python", "a", "--python", "b"], ["one interpreter", "bisect torch"]),
        (["locks", "m.toml", "--python", "no-such-python"], ["no-such-python"]),
        (["locks", "m.toml", "--max-trials", "0"], ["--max-trials"]),
        (["locks", "m.toml", "--max-minutes", "0"], ["--max-minutes 0", "above 0"]),
        (["locks", "m.toml", "--jobs", "0"], ["--jobs"]),
        (["locks", "--resume"], ["reports/latest", "--out"]),
        (["locks", "--resume", "--out", "."], ["no bisection"]),
        (["regions", "m.toml", "--locks", "none"], ["--locks", "bisect locks"]),
        (["torch", "steps=2", "--locks", "none"], ["--locks", "scenario"]),
        (["torch", "m.toml", "--python", "a", "--python", "b"], ["4 scenarios", "--only"]),
        (["torch", "steps=2"], ["two interpreters"]),
        (["torch", "steps=2", "--python", "python3"], ["two interpreters"]),
        (["torch", "steps=2", "--python", "no-such-python", "--python", "python3"], ["no-such-python"]),
        (["torch", "steps=2", "--python", "no-such-python,python3"], ["no-such-python"]),
        (["torch", "steps=2", "--python", "python3,,python3"], ["--python", "blank"]),
        (["torch", "steps=2", "--python", ""], ["--python", "blank"]),
        (["locks", "m.toml", "--python", "a,b"], ["one interpreter", "bisect torch"]),
        (["torch", "steps=2", "--thorough"], ["--thorough", "bisect locks"]),
        (["regions", "steps=2", "--thorough"], ["--thorough", "bisect locks"]),
        (["torch", "steps=2", "--portfolio"], ["--portfolio", "own schedule"]),
        (["locks", "schedule=pct:1:3", "--portfolio"], ["--portfolio", "schedule of their own"]),
        (["regions", "--resume", "--out", "run", "--thorough"], ["--thorough", "bisect locks"]),
        (["torch", "--resume", "--out", "run", "--locks", "none"], ["--locks", "scenario"]),
    ],
)
def test_one_clear_line(fails: Fails, arguments: list[str], words: list[str]) -> None:
    said = fails(*arguments)
    for word in words:
        assert word in said


def begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MATRIX)
    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: FakeExecutor())
    monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: plan_oracle.NoPlans())
    with pytest.raises(SystemExit) as ended:
        cli.main(["bisect", "locks", "m.toml", "--out", "run", "--quiet", "--max-trials", "4", "--json"])
    assert ended.value.code == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["locks", "m.toml", "--out", "run"], ["already holds a run", "--resume"]),
        (["regions", "--resume", "--out", "run"], ["bisection of locks", "harness bisect locks"]),
        (["locks", "--resume", "--out", "run", "--p-min", "0.1"], ["begun with --p-min 0.05", "0.1"]),
        (["locks", "--resume", "--out", "run", "--alpha", "0.1"], ["begun with --alpha 0.05"]),
        (["locks", "--resume", "--out", "run", "--no-portfolio"], ["begun with the portfolio"]),
        (["locks", "--resume", "--out", "run", "--locks", "none"], ["other scenarios or strategies"]),
        (["locks", "steps=3", "--resume", "--out", "run"], ["other scenarios or strategies"]),
    ],
)
def test_another_question_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fails: Fails,
    capsys: object,
    arguments: list[str],
    words: list[str],
) -> None:
    begin(monkeypatch, tmp_path)
    capsys.readouterr()  # type: ignore[attr-defined]
    said = fails(*arguments)
    for word in words:
        assert word in said


def test_another_torch_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: Fails, capsys: object
) -> None:
    begin(monkeypatch, tmp_path)
    capsys.readouterr()  # type: ignore[attr-defined]
    file = tmp_path / "run" / "environment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "torch": "1.0"}))
    assert "begun with torch 1.0" in fails("locks", "--resume", "--out", "run")


def test_a_question_of_a_newer_harness(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "bisect.json").write_text('{"schema": 99}')
    assert "not written by this version" in fails("locks", "--resume", "--out", ".")


@pytest.mark.parametrize(
    ("key", "value"),
    [("contexts", None), ("contexts", [7]), ("contexts", [{"lock": "no such"}]), ("contexts", []), ("locks", 7), ("locks", [7]),
     ("portfolio", None), ("what", "x"), ("target", 7), ("p_min", "x"), ("alpha", None), ("thorough", 1), ("pipeline", []),
     ("timeout_s", "x"), ("hang_timeout_s", []), ("more", 1)],
)  # fmt: skip
def test_a_question_that_is_damaged_is_one_line(fails: Fails, tmp_path: Path, key: str, value: object) -> None:
    whole = make_question(Asked("locks", "steps=2")).to_json()
    (tmp_path / "bisect.json").write_text(json.dumps({**whole, key: value}))
    assert "is not what a bisection wrote" in fails("locks", "--resume", "--out", ".")


@pytest.mark.parametrize("key", ["contexts", "locks", "portfolio", "what", "target"])
def test_a_question_that_lacks_something_is_one_line(fails: Fails, tmp_path: Path, key: str) -> None:
    whole = make_question(Asked("locks", "steps=2")).to_json()
    (tmp_path / "bisect.json").write_text(json.dumps({name: kept for name, kept in whole.items() if name != key}))
    assert "is not what a bisection wrote" in fails("locks", "--resume", "--out", ".")


def test_a_scenario_is_written_as_its_axes() -> None:
    assert parse_scenario("shapes=per_drafter, steps=4") == Scenario(shapes="per_drafter", steps=4)
    assert parse_scenario("devices=cuda:0+cuda:1") == Scenario(devices="cuda:0+cuda:1")
    with pytest.raises(UserError, match="no axis=value"):
        parse_scenario("")


def test_a_question_is_kept_whole(tmp_path: Path) -> None:
    from harness.control.bisect_question import QUESTION, read_question

    question = make_question(Asked("locks", "shapes=variable", p_min=0.1, thorough=True))
    (tmp_path / QUESTION).write_text(json.dumps({**question.to_json(), "answer": {"answer": None}}))
    assert read_question(tmp_path) == question
    assert isinstance(question, Question)
    assert question.locks[0] == "none"
    assert question.portfolio


def test_two_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: Fails) -> None:
    Versions(monkeypatch, set())
    said = fails("torch", "steps=2", "--python=2.11.0", "--python=2.11.0", "--out", "run")
    assert "2.11.0 is there already" in said
