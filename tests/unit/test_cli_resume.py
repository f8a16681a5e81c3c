"""`harness run --resume`: what it goes on with, what it refuses before anything runs, and what it leaves recorded."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import MATRIX, FakeExecutor, row

import harness
from harness import cli
from harness.control import executors, rundir
from harness.core.errors import RunFolderError
from harness.core.scenario import Scenario

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def jobs() -> list[int]:
    """With how many each executor of the test was made."""
    return []


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch, jobs: list[int]) -> FakeExecutor:
    """Every run of the test gets this one."""
    fake = FakeExecutor()

    def make(name: str, *, python: str, jobs: int) -> FakeExecutor:
        made.append(jobs)
        return fake

    made = jobs
    monkeypatch.setattr(executors, "make_executor", make)
    return fake


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit code, standard output, standard error) of `harness run …`, in a folder with m.toml."""
    monkeypatch.chdir(tmp_path)
    Path("m.toml").write_text(MATRIX)

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", *words])
        assert isinstance(ended.value.code, int)
        return (ended.value.code, *capsys.readouterr())

    return call


def refused(said: tuple[int, str, str], *words: str) -> None:
    """Exit 2, one line, nothing else."""
    code, out, err = said
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("error: ")
    for word in words:
        assert word in err


def options() -> dict[str, Any]:
    found = json.loads(Path("run/environment.json").read_text())["options"]
    assert isinstance(found, dict)
    return found


def edit(change: Callable[[dict[str, Any]], object]) -> None:
    """Of the run's environment.json."""
    file = Path("run/environment.json")
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


# what is no run, or lacks its matrix


def test_without_its_matrix_a_run_is_not_gone_on_with(run: Run, executor: FakeExecutor) -> None:
    """Rows alone do not say what they are of: the default matrix least of all."""
    run("m.toml", "--out", "run")
    executor.ran.clear()
    Path("run/matrix.toml").unlink()
    before = sorted(Path("run").rglob("*"))
    refused(run("--resume", "--out", "run"), "run has no matrix.toml", "harness run m.toml --resume --out run")
    Path("run/environment.json").unlink()
    refused(run("--resume", "--out", "run"), "run has no matrix.toml", "harness run MATRIX --resume --out run")
    assert executor.ran == []
    assert set(before) - set(Path("run").rglob("*")) == {Path("run/environment.json")}
    assert run("m.toml", "--resume", "--out", "run", "--repeats", "3")[0] == 0
    assert len(executor.ran) == 4
    assert Path("run/matrix.toml").read_text() == MATRIX
    assert run("--resume", "--out", "run")[0] == 0


def test_a_matrix_that_the_rows_are_not_of_is_not_taken_for_theirs(run: Run, executor: FakeExecutor) -> None:
    run("m.toml", "--out", "run")
    executor.ran.clear()
    Path("run/matrix.toml").unlink()
    Path("other.toml").write_text(MATRIX.replace('"first_step"', '"every_step"'))
    refused(
        run("other.toml", "--resume", "--out", "run"),
        "run holds trials of lock=first_step, which other.toml does not have",
    )
    assert executor.ran == []
    assert not Path("run/matrix.toml").exists()


def watched(path: Path) -> None:
    with rundir.open_run(path, resume=False) as folder:
        folder.fresh_trial_folder("rank0")
        folder.open_results(lambda note: None)
        folder.append(row(Scenario(workload="watch:train.py")))
        folder.write("environment.json", rundir.dump_environment({"kind": "watch", "options": {"matrix": "watch of x"}}))


def reproduced(path: Path) -> None:
    for name in ("001-plan", "002-counterfactual"):
        (path / "trials" / name).mkdir(parents=True)


def trials_alone(path: Path) -> None:
    (path / "trials" / "default--r0").mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (watched, "is the folder of a watch (harness watch), not of a run"),
        (reproduced, "holds the trials of a plan (harness reproduce), not of a run"),
        (trials_alone, "holds trials/ and nothing that says what was run"),
    ],
)
def test_what_is_no_run_says_what_it_is(
    run: Run, executor: FakeExecutor, make: Callable[[Path], None], words: str
) -> None:
    make(Path("reports/it"))
    assert rundir.not_a_run(Path("reports/it")).startswith(words)
    assert not rundir.is_run_folder(Path("reports/it"))
    before = sorted(Path("reports").rglob("*"))
    for more in ([], ["m.toml"]):
        refused(run(*more, "--resume", "--out", "reports/it"), f"reports/it {words}", "name another with --out")
    refused(run("m.toml", "--out", "reports/it"), f"reports/it {words}", "choose another folder with --out")
    Path("reports/latest").symlink_to("it")
    refused(run("--resume"), f"reports/it {words}", "with --out")
    assert executor.ran == []
    assert sorted(Path("reports").rglob("*")) == sorted([*before, Path("reports/latest")])
    with pytest.raises(RunFolderError, match=re.escape(f"reports/it {words}")):
        harness.load("reports/it")


def test_a_run_is_one_whatever_of_it_is_left(run: Run, executor: FakeExecutor) -> None:
    run("m.toml", "--out", "run")
    for name in ("matrix.toml", "environment.json", "results.jsonl"):
        Path(name).mkdir()
        shutil.copy(Path("run") / name, name)
        assert rundir.not_a_run(Path(name)) == ""
    assert rundir.not_a_run(Path("nowhere")) == "is no run folder"
    assert rundir.not_a_run(Path("run/trials")) == "holds no run"


# -j


def test_how_many_ran_at_a_time_holds_until_said_otherwise(run: Run, executor: FakeExecutor, jobs: list[int]) -> None:
    run("m.toml", "--out", "run", "-j", "2")
    _, _, err = run("--resume", "--out", "run", "--repeats", "3")
    assert jobs == [2, 2]
    assert options()["jobs"] == 2
    assert "varied" not in options()
    assert "--jobs" not in err


def test_trials_of_different_jobs_are_told_apart(run: Run, executor: FakeExecutor, jobs: list[int]) -> None:
    run("m.toml", "--out", "run", "-j", "2")
    _, _, err = run("--resume", "--out", "run", "--repeats", "3", "-j", "1")
    assert "--jobs was 2 for trials of this run and is 1 now" in " ".join(err.split())
    assert (jobs, options()["jobs"], options()["varied"]) == ([2, 1], 1, {"jobs": [2, 1]})
    run("--resume", "--out", "run", "--repeats", "4", "-j", "3")
    run("--resume", "--out", "run", "--repeats", "5", "-j", "2")
    assert (jobs, options()["jobs"], options()["varied"]) == ([2, 1, 3, 2], 2, {"jobs": [2, 1, 3]})


def test_a_run_that_is_whole_keeps_what_its_trials_had(run: Run, executor: FakeExecutor, jobs: list[int]) -> None:
    run("m.toml", "--out", "run", "-j", "2")
    for more in ([], ["-j", "4"]):
        assert run("--resume", "--out", "run", *more)[0] == 0
        assert (jobs, options()["jobs"], "varied" in options()) == ([2], 2, False)


def test_what_no_trial_had_does_not_count(run: Run, executor: FakeExecutor, jobs: list[int]) -> None:
    executor.before = lambda number: signal.raise_signal(signal.SIGINT)
    run("m.toml", "--out", "run", "-j", "4")
    executor.before = lambda number: None
    run("--resume", "--out", "run", "-j", "1")
    assert (jobs, options()["jobs"], "varied" in options()) == ([4, 1], 1, False)


def test_a_trial_that_has_ended_without_its_row_counts(run: Run, executor: FakeExecutor) -> None:
    """As a killed run leaves it: the resume takes it over, with the speed that it had then."""
    run("m.toml", "--out", "run", "-j", "2", "--repeats", "1")
    Path("run/results.jsonl").write_text("")
    (Path("run/trials/default--r0") / "result.json").write_text(json.dumps({"outcomes": ["ok"], "steps_ok": 3}))
    run("--resume", "--out", "run", "-j", "1")
    assert options()["varied"] == {"jobs": [2, 1]}


def test_an_interpreter_that_is_named_is_the_one_that_runs(
    run: Run, executor: FakeExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same torch, or it is refused."""
    run("m.toml", "--out", "run")
    other, pythons = tmp_path / "python", []
    other.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setattr(
        executors, "make_executor", lambda name, *, python, jobs: [pythons.append(python), FakeExecutor()][1]
    )
    run("--resume", "--out", "run", "--repeats", "3", "--python", str(other))
    run("--resume", "--out", "run", "--repeats", "4")
    assert pythons == [str(other)] * 2


# what is damaged


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"trial": "x"}, 'trial x: it has no "scenario_id"'),
        ({**row(None, 9), "outcomes": ["exploded"]}, 'trial default--r9: "outcomes" is not a list of outcomes'),
        ({**row(None, 9), "outcomes": "ok"}, 'trial default--r9: "outcomes" is not a list of outcomes'),
        ({**row(None, 9), "outcomes": []}, 'trial default--r9: "outcomes" is not a list of outcomes'),
        ({**row(None, 9), "fx_errors": "many"}, 'trial default--r9: "fx_errors" is not a whole number'),
        ({**row(None, 9), "scenario": []}, 'trial default--r9: "scenario" is not an object'),
        ({**row(None, 9), "schema": 99}, 'trial default--r9: "schema" is 99, and this version reads 1'),
    ],
)
def test_a_damaged_row_is_told_before_anything_runs(
    run: Run, executor: FakeExecutor, line: dict[str, Any], words: str
) -> None:
    run("m.toml", "--out", "run")
    executor.ran.clear()
    environment = Path("run/environment.json").read_text()
    with open("run/results.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    refused(run("--resume", "--out", "run", "--repeats", "3"), f"run/results.jsonl: {words}", "move its line out of the file")
    assert executor.ran == []
    assert Path("run/environment.json").read_text() == environment


def test_a_row_without_its_scenario_counts_for_the_one_it_names(run: Run, executor: FakeExecutor) -> None:
    run("m.toml", "--out", "run")
    rows = [json.loads(line) for line in Path("run/results.jsonl").read_text().splitlines()]
    Path("run/results.jsonl").write_text("".join(json.dumps({**one, "scenario": {}}) + "\n" for one in rows))
    code, out, _ = run("--resume", "--out", "run", "--json")
    assert code == 0
    assert json.loads(out)["scenarios"][0]["scenario"]["lock"] == "none"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: told.update(options="x"), '"options" is not an object'),
        (lambda told: told["options"].update(repeats="2"), '"options.repeats" is not a whole number above 0'),
        (lambda told: told["options"].update(repeats=0), '"options.repeats" is not a whole number above 0'),
        (lambda told: told["options"].update(jobs=[1]), '"options.jobs" is not a whole number above 0'),
        (lambda told: told["options"].update(jobs=True), '"options.jobs" is not a whole number above 0'),
        (lambda told: told["options"].update(only=5), '"options.only" is not a string'),
        (lambda told: told["options"].update(timeout_s="9"), '"options.timeout_s" is not a number above 0'),
        (lambda told: told["options"].update(timeout_s=-1), '"options.timeout_s" is not a number above 0'),
        (lambda told: told["options"].update(matrix={}), '"options.matrix" is not a string'),
        (lambda told: told["options"].update(varied=[1]), '"options.varied" is not an object of lists'),
        (lambda told: told["options"].update(executor="cloud"), 'unknown executor "cloud"'),
        (lambda told: told.update(executable=5), '"executable" is not a string'),
        (lambda told: told.update(gpus="x"), '"gpus" is not a list of objects, each with a name'),
        (lambda told: told.update(cores_usable=None), '"cores_usable" is not a whole number above 0'),
        (lambda told: told.update(variables=[]), '"variables" is not an object'),
    ],
)
def test_a_damaged_environment_is_told_before_anything_runs(
    run: Run, executor: FakeExecutor, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    run("m.toml", "--out", "run", "--repeats", "1")
    executor.ran.clear()
    edit(change)
    refused(run("--resume", "--out", "run", "--repeats", "3"), words)
    assert executor.ran == []


def test_facts_that_environment_json_lacks_are_those_of_now(run: Run, executor: FakeExecutor) -> None:
    run("m.toml", "--out", "run")
    edit(lambda told: [told.pop(key) for key in ("gpus", "cores_usable", "variables", "executable", "options")])
    code, out, _ = run("--resume", "--out", "run")
    assert code == 0
    assert "CPU core" in out or " × " in out
    assert options()["repeats"] == 2


# what it says to do next


def next_command(out: str) -> list[str]:
    """The words of the command that adds trials."""
    (found,) = re.findall(r"^ +harness (run --resume .*)$", out, re.MULTILINE)
    return shlex.split(found)


def promised(out: str) -> int:
    (count,) = re.findall(r"about ([\d,]+) more trials?,", " ".join(out.split()))
    return int(count.replace(",", ""))


@pytest.mark.parametrize(
    ("begun", "then", "command"),
    [
        ([], ["--only", "lock=none"], ["--only", "lock=*", "--repeats", "59"]),
        (["--only", "lock=none"], [], ["--repeats", "59"]),
        (["--only", "lock=none"], ["--only", "checkpoint=none"], None),
        ([], [], ["--repeats", "59"]),
    ],
)
def test_the_next_command_does_what_it_says(
    run: Run, executor: FakeExecutor, begun: list[str], then: list[str], command: list[str] | None
) -> None:
    """An --only that was given for once holds on a resume; the trials that are counted are of all that have any."""
    run("m.toml", "--out", "run", *begun)
    _, out, _ = run("--resume", "--out", "run", *then)
    words = next_command(out)
    if command is not None:
        assert words == ["run", "--resume", "--out", "run", *command]
    executor.ran.clear()
    count = promised(out)
    _, out, _ = run(*words[1:])
    assert len(executor.ran) == count
    assert "undecided" not in out


def test_an_interrupted_part_goes_on_as_it_was_asked_for(run: Run, executor: FakeExecutor) -> None:
    run("m.toml", "--out", "run")
    executor.before = lambda number: signal.raise_signal(signal.SIGINT)
    _, out, _ = run("--resume", "--out", "run", "--only", "lock=none", "--repeats", "4")
    assert next_command(out) == ["run", "--resume", "--out", "run"]
