"""`harness bisect torch`: between which versions the verdict changes, with interpreters that are not there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_versions import Versions

from harness import cli
from harness.analysis.ladder import PlanResult
from harness.analysis.plan_questions import Ask
from harness.control import plan_oracle
from harness.control.bisect_question import Question


def torch(monkeypatch: pytest.MonkeyPatch, capsys: object, *arguments: str) -> tuple[int, Any]:
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
    turn = document["turns"][0]
    assert (turn["older"], turn["newer"]) == ("2.12.0", "2.13.0")
    found = {one["version"]: one for one in document["versions"]}
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


def test_it_goes_on_in_the_latest_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: object) -> None:
    monkeypatch.chdir(tmp_path)
    versions = Versions(monkeypatch, {"2.11.0"})
    _, document = torch(monkeypatch, capsys, "--python=2.11.0", "--python=2.13.0", "--max-trials", "9")
    _, again = torch(monkeypatch, capsys, "--resume")
    assert again["run_dir"] == document["run_dir"]
    assert (again["answer"], len(versions.ran)) == ("2.13.0", 60)


def test_interpreters_in_one_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: object) -> None:
    monkeypatch.chdir(tmp_path)
    Versions(monkeypatch, {"2.11.0"})
    _, document = torch(monkeypatch, capsys, "--python", "2.11.0, 2.12.0", "--python=2.13.0", "--out", "run")
    assert [one["version"] for one in document["versions"]] == ["2.11.0", "2.12.0", "2.13.0"]
    assert document["answer"] == "2.12.0"


class Oracle:
    """Two hazards; the plan of the second comes about in 2.11.0 only, in two trials."""

    def __init__(self, torch: str, asked: list[tuple[str, str, str]]) -> None:
        self._torch, self._asked = torch, asked

    def hazards(self) -> tuple[str, ...]:
        return ("h1", "h2")

    def by_locks(self) -> tuple[str, ...]:
        return ()

    def ask(self, asks: Sequence[Ask], *_: object) -> Iterator[PlanResult]:
        for ask in asks:
            self._asked.append((self._torch, ask.hazard, ask.strategy))
            if (self._torch, ask.hazard) == ("2.11.0", "h2"):
                witness = {"hazard": ask.hazard, "trial": "plans/x"}
                yield PlanResult(ask.hazard, ask.strategy, "reproduced", witness=witness, trials=2)
            else:
                yield PlanResult(ask.hazard, ask.strategy, "unreachable")


def with_plans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Each version has an oracle; what it was asked: (torch, hazard, lock)."""
    asked: list[tuple[str, str, str]] = []

    def oracle_for(question: Question, environment: dict[str, str], *_: object) -> Oracle:
        return Oracle(environment["torch"], asked)

    monkeypatch.setattr(plan_oracle, "oracle_for", oracle_for)
    return asked


def test_a_plan_settles_a_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: object) -> None:
    """In trials it does not fail in either version; by its plan it does in the older one."""
    monkeypatch.chdir(tmp_path)
    versions = Versions(monkeypatch, set())
    asked = with_plans(monkeypatch)
    code, document = torch(monkeypatch, capsys, "--python=2.11.0,2.13.0", "--out", "run")
    assert (code, document["answer"], document["verdict"]) == (0, "2.13.0", "changes")
    assert asked == [(version, hazard, "none") for version in ("2.11.0", "2.13.0") for hazard in ("h1", "h2")]
    assert set(versions.ran) == {"2.13.0"}, "of what a plan has settled nothing else is run"
    older, newer = document["versions"]
    assert (older["verdict"], older["plan_failures"], older["plan_trials"], older["trials"]) == ("unsafe", 1, 3, 0)
    assert older["witness"] == {"hazard": "h2", "trial": "2.11.0/plans/x"}
    assert (newer["verdict"], newer["plan_failures"], newer["plan_trials"], newer["trials"]) == ("safe", 0, 2, 59)
    assert document["trials_total"] == 59 + 5
    code, again = torch(monkeypatch, capsys, "--resume", "--out", "run")
    assert (code, again["versions"], len(asked)) == (0, document["versions"], 4)


def test_plans_are_within_the_budget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: object) -> None:
    monkeypatch.chdir(tmp_path)
    Versions(monkeypatch, set())
    asked = with_plans(monkeypatch)
    code, document = torch(monkeypatch, capsys, "--python=2.11.0,2.13.0", "--out", "run", "--max-trials", "1")
    assert (code, document["stopped"], asked) == (3, "--max-trials 1 reached", [("2.11.0", "h1", "none")])
    torch(monkeypatch, capsys, "--resume", "--out", "run")
    assert [hazard for version, hazard, _ in asked if version == "2.11.0"] == ["h1", "h2"]


def test_a_plans_witness_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Versions(monkeypatch, set())
    with_plans(monkeypatch)
    with pytest.raises(SystemExit):
        cli.main(["bisect", "torch", "steps=2", "--python=2.11.0,2.13.0", "--out", "run", "-q"])
    text = capsys.readouterr().out
    assert "h2, by plan: found in 3 trials of plans" in " ".join(text.split())
    assert "1/3" not in text, "a count of plans' trials reads as one of failures"
