"""`harness compare`, and `harness report --baseline`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_folder import ENVIRONMENT, write_folder
from fake_runs import FX_ERROR, row

from harness import cli
from harness.core.scenario import Scenario

MATRIX = 'schema = 1\n[axes]\nlock = ["none", "every_step"]\n'
NONE, EVERY = Scenario(), Scenario(lock="every_step")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def harness(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def run(name: str, failures: int, trials: int = 20, *, rate: float = 1000.0, **rest: Any) -> Path:
    rows = [row(NONE, number, tokens_per_s=rate + number) for number in range(trials)]
    for one in rows[:failures]:
        one.update(outcome="fx_error", outcomes=["fx_error"], errors=[FX_ERROR], tokens_per_s=None)
    rows += [row(EVERY, number, tokens_per_s=rate + number / 2) for number in range(trials)]
    return write_folder(Path(name), rows, **{"matrix": MATRIX, **rest})


def test_worse_is_exit_1_and_names_the_test_that_decided(capsys: pytest.CaptureFixture[str]) -> None:
    run("a", 0)
    run("b", 12, environment={**ENVIRONMENT, "torch": "2.13.0"})
    code, out, err = harness(capsys, "compare", "a", "b")
    assert (code, err) == (1, "")
    text = " ".join(out.split())
    assert "Of 2 scenarios in both runs: 1 worse, 1 no change that can be told." in text
    assert "lock=none: more failures: 0/20 → 12/20, Fisher's exact test, p < 0.001" in text
    assert "torch: 2.11.0+cpu → 2.13.0" in text
    assert "Holm's correction over all" in text
    assert max(map(len, out.splitlines())) <= 80


def test_better_and_equal_are_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    run("a", 0)
    run("b", 12)
    assert harness(capsys, "compare", "b", "a")[0] == 0
    assert harness(capsys, "compare", "a", "a")[0] == 0


def test_slower_by_the_rank_test(capsys: pytest.CaptureFixture[str]) -> None:
    run("a", 0)
    run("b", 0, rate=700.0)
    code, out, _ = harness(capsys, "compare", "a", "b")
    assert code == 1
    assert "slower: 1010 → 710 tok/s" in " ".join(out.split())
    assert "a machine that was busier in one of them shows as slower" in " ".join(out.split())


def test_on_another_machine_it_says_that_speed_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    run("a", 0)
    run("b", 0, rate=100.0, environment={**ENVIRONMENT, "cpu": "Xeon"})
    code, out, _ = harness(capsys, "compare", "a", "b")
    assert code == 0
    assert "Not fair, so speed is shown and not counted\n  other processor: AMD EPYC → Xeon" in out


def test_nothing_comparable_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    run("a", 0)
    warm = [row(Scenario(cache="warm"), number) for number in range(20)]
    write_folder(Path("b"), warm, matrix=MATRIX)
    code, out, _ = harness(capsys, "compare", "a", "b")
    assert code == 3
    assert "the two runs have no scenario in common" in out
    assert "(the other run has it with cache=warm: never compared)" in " ".join(out.split())
    run("c", 12, matrix=MATRIX + "[pipeline]\nhidden_size = 32\n")
    code, out, _ = harness(capsys, "compare", "a", "c")
    assert code == 3
    assert "other pipeline settings: hidden_size 64 → 32" in " ".join(out.split())


def test_of_a_users_workload_only_what_is_written_is_compared_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    own = Scenario(workload="my.module:Mine")
    matrix = 'schema = 1\n[defaults]\nworkload = "my.module:Mine"\n[axes]\nlock = ["none"]\n'
    write_folder(Path("a"), [row(own, n) for n in range(5)], matrix=matrix + "[pipeline]\nrate = 0.05\n")
    write_folder(Path("b"), [row(own, n) for n in range(5)], matrix=matrix)
    code, out, _ = harness(capsys, "compare", "a", "b")
    text = " ".join(out.split())
    assert code == 3
    assert "Nothing can be compared: other pipeline settings: rate 0.05 → not set." in text
    assert text.count("pipeline settings") == 1
    assert "hidden_size" not in text
    write_folder(Path("c"), [row(own, n) for n in range(5)], matrix=matrix + '[pipeline]\nrate = "0.05"\n')
    assert 'rate 0.05 → "0.05"' in " ".join(harness(capsys, "compare", "a", "c")[1].split())


def test_a_default_that_is_written_down_is_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    run("a", 0)
    run("b", 0, matrix=MATRIX + "[pipeline]\nhidden_size = 64\n")
    assert harness(capsys, "compare", "a", "b")[0] == 0


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run("a", 0)
    run("b", 12)
    code, out, err = harness(capsys, "compare", "a", "b", "--json")
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert document["before"] == {"run_dir": str(tmp_path / "a"), "torch": "2.11.0+cpu", "where": "2 × AMD EPYC"}
    assert (document["correction"], document["alpha"], document["exit_code"]) == ("Holm", 0.05, 1)
    none = next(item for item in document["scenarios"] if item["id"] == NONE.id)
    assert (none["word"], none["before"], none["after"]) == (
        "worse",
        {"failures": 0, "trials": 20},
        {"failures": 12, "trials": 20},
    )
    assert [test["measure"] for test in none["tests"]] == ["failures", "throughput", "start-up"]
    assert none["tests"][0]["p_adjusted"] >= none["tests"][0]["p"]


def test_the_page_of_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    run("a", 0)
    run("b", 12)
    code, _, err = harness(capsys, "compare", "a", "b", "--html", "c.html")
    assert (code, err) == (1, "note: report: c.html\n")
    assert harness(capsys, "report", "b", "--baseline", "a")[:2] == (0, "b/report.html\n")
    page = Path("b/report.html").read_text("utf-8")
    assert page == Path("c.html").read_text("utf-8")
    assert '<section id="comparison">' in page
    assert "0/20 → 12/20" in page
    harness(capsys, "report", "b")
    assert '<section id="comparison">' not in Path("b/report.html").read_text("utf-8")


def test_a_damaged_line_is_said_and_the_rest_compared(capsys: pytest.CaptureFixture[str]) -> None:
    run("a", 0)
    with open("a/results.jsonl", "a") as file:
        file.write("damage\n")
    run("b", 0)
    code, _, err = harness(capsys, "compare", "a", "b")
    assert code == 0
    assert err == "note: a: results.jsonl, line 41: not a row of results; left out.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "a", "nowhere"], "nowhere: no such run folder"),
        (["compare", "file", "a"], "is a file"),
        (["compare", "a", "."], "is not a run folder"),
        (["compare", "a"], "Missing argument 'B'"),
        (["compare", "a", "a", "--html", "no/where.html"], "cannot write no/where.html"),
        (["report", "a", "--baseline", "nowhere"], "nowhere: no such run folder"),
        (["report", "a", "--baseline", "a", "--trial", "x"], "--trial writes the page of one trial"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    run("a", 0, 2)
    Path("file").write_text("")
    code, out, err = harness(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err
