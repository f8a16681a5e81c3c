"""`harness bisect`: bad input is one clear line, and nothing is half-written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import MATRIX, FakeExecutor

from harness import cli
from harness.control import bisect_torch, executors, plan_oracle
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


# bisect torch


class Versions:
    """Interpreters that are not there, and an executor for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: set[str]) -> None:
        from fake_runs import FX_ERROR, make_row

        self.ran: list[str] = []

        def environment(python: str | None, options: object, question: object) -> dict[str, object]:
            return {"torch": python, "python": "3.11", "executable": python, "gpus": [], "variables": {}}

        def make(name: str, *, python: str, jobs: int) -> FakeExecutor:
            def outcome(request):  # type: ignore[no-untyped-def]
                self.ran.append(python)
                if python in fails:
                    return make_row(request, "fx_error", errors=[FX_ERROR])
                return make_row(request)

            return FakeExecutor(outcome)

        monkeypatch.setattr(bisect_torch, "environment_of", environment)
        monkeypatch.setattr(executors, "make_executor", make)


def torch(monkeypatch: pytest.MonkeyPatch, capsys: object, *arguments: str) -> tuple[int, dict[str, object]]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bisect", "torch", "shapes=per_drafter", "--json", "--quiet", *arguments])
    out = capsys.readouterr().out  # type: ignore[attr-defined]
    return int(ended.value.code or 0), json.loads(out)


def test_where_the_answer_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: object) -> None:
    monkeypatch.chdir(tmp_path)
    versions = Versions(monkeypatch, {"2.9.1", "2.11.0", "2.12.0"})
    pythons = [f"--python={version}" for version in ("2.13.0", "2.9.1", "2.11.0", "2.14.0", "2.12.0")]
    code, document = torch(monkeypatch, capsys, *pythons, "--out", "run")
    assert (code, document["answer"], document["verdict"]) == (0, "2.13.0", "changes")
    assert document["conclusion"] == "unsafe in 2.12.0, safe in 2.13.0"
    turn = document["turns"][0]  # type: ignore[index]
    assert (turn["older"], turn["newer"]) == ("2.12.0", "2.13.0")
    found = {one["version"]: one for one in document["versions"]}  # type: ignore[attr-defined]
    assert found["2.12.0"]["witness"]["trial"].startswith("2.12.0/trials/")
    assert found["2.13.0"]["trials"] == found["2.14.0"]["trials"] == 59
    assert (tmp_path / "run" / "2.12.0" / "results.jsonl").exists()
    assert (tmp_path / "run" / "2.12.0" / "matrix.toml").exists()
    count = len(versions.ran)
    code, again = torch(monkeypatch, capsys, "--resume", "--out", "run")
    assert (code, again["turns"], len(versions.ran)) == (0, document["turns"], count)


@pytest.mark.parametrize(("fails_in", "code", "verdict"), [({"2.11.0", "2.13.0"}, 1, "unsafe"), (set(), 0, "safe")])
def test_where_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: object, fails_in: set[str], code: int, verdict: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Versions(monkeypatch, fails_in)
    found, document = torch(monkeypatch, capsys, "--python=2.11.0", "--python=2.13.0", "--out", "run")
    assert (found, document["verdict"], document["answer"]) == (code, verdict, None)


def test_versions_are_stopped_and_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: object) -> None:
    monkeypatch.chdir(tmp_path)
    versions = Versions(monkeypatch, {"2.11.0"})
    code, document = torch(
        monkeypatch, capsys, "--python=2.11.0", "--python=2.13.0", "--out", "run", "--max-trials", "9"
    )
    assert (code, document["verdict"], document["trials_total"]) == (3, "undecided", 9)
    assert document["open"] == ["torch 2.13.0: 0/8 failed, which is not enough"]
    code, document = torch(monkeypatch, capsys, "--resume", "--out", "run")
    assert (code, document["answer"], len(versions.ran)) == (0, "2.13.0", 60)


def test_versions_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Versions(monkeypatch, {"2.11.0"})
    with pytest.raises(SystemExit):
        cli.main(["bisect", "torch", "steps=2", "--python=2.11.0", "--python=2.13.0", "--out", "run", "-q"])
    text = capsys.readouterr().out
    assert "Answer: unsafe in 2.11.0, safe in 2.13.0" in text
    assert "0/59" in text
    assert "1/1" in text


def test_two_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: Fails) -> None:
    Versions(monkeypatch, set())
    said = fails("torch", "steps=2", "--python=2.11.0", "--python=2.11.0", "--out", "run")
    assert "2.11.0 is there already" in said
