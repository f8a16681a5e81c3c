"""`harness run` with an executor that makes its rows up: documents, exit codes, resume, interrupts."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import MATRIX, FakeExecutor, fx_row, make_row

from harness import cli
from harness.control import executors
from harness.control.request import Row, TrialRequest

EXPECT = """
[[expect]]
where = "lock=none"
must = ["fx_error"]
[[expect]]
where = "lock=first_step"
only = ["ok"]
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """Every run of the test gets this one."""
    fake = FakeExecutor()
    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: fake)
    return fake


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit code, standard output, standard error) of `harness run m.toml --out run …`; None leaves a part out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MATRIX)

    def call(*more: str, matrix: str | None = "m.toml", out: str | None = "run") -> tuple[int, str, str]:
        where = ["--out", out] if out else []
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", *([matrix] if matrix else []), *where, *more])
        code = ended.value.code
        assert isinstance(code, int)
        return (code, *capsys.readouterr())

    return call


def fails_under_none(request: TrialRequest) -> Row:
    return fx_row(request.scenario, request.repeat) if request.scenario.lock == "none" else make_row(request)


def interrupt_at(moment: int) -> Callable[[int], None]:
    """A Ctrl-C during that trial."""

    def before(number: int) -> None:
        if number == moment:
            signal.raise_signal(signal.SIGINT)

    return before


def comparable(document: dict[str, Any]) -> list[Any]:
    return list(document["scenarios"])


def test_the_json_document(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    executor.outcome = fails_under_none
    code, out, err = run("--json")
    document = json.loads(out)
    assert document["run_dir"] == str(tmp_path / "run")
    assert document["environment"]["torch"]
    assert document["environment"]["options"]["repeats"] == 2
    assert [scenario["id"] for scenario in document["scenarios"]] == [
        "default",
        "checkpoint=reentrant",
        "lock=first_step",
        "lock=first_step,checkpoint=reentrant",
    ]
    first = document["scenarios"][0]
    assert (first["trials"], first["failures"], first["fx_errors"], first["verdict"]) == (2, 2, 2, "unsafe")
    assert first["judgements"][0]["kind"] == "unexpected"
    assert code == 1
    assert "8 trials to run" in err
    assert executor.closed


def test_the_run_folder(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    assert run()[0] == 0
    folder = tmp_path / "run"
    assert (folder / "matrix.toml").read_text() == MATRIX
    assert json.loads((folder / "environment.json").read_text())["schema"] == 1
    assert len((folder / "results.jsonl").read_text().splitlines()) == 8
    assert sorted(path.name for path in (folder / "trials").iterdir()) == sorted(executor.ran)


def test_the_default_folder_and_latest(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    _, out, _ = run("--json", out=None)
    folder = Path(json.loads(out)["run_dir"])
    assert folder.parent == tmp_path / "reports"
    assert folder.name.startswith("m-2")
    assert (tmp_path / "reports" / "latest").resolve() == folder


def test_the_table_goes_to_standard_output_and_the_rest_does_not(run: Run, executor: FakeExecutor) -> None:
    code, out, err = run()
    assert code == 0
    assert "undecided 0/2 (≤ 78 %)" in out
    assert "trials to run" not in out
    assert "undecided" not in err
    assert max(len(line) for line in out.splitlines()) <= 80


def test_quiet_says_nothing_on_the_way(run: Run, executor: FakeExecutor) -> None:
    assert run("-q")[2] == ""


@pytest.mark.parametrize(
    ("outcome", "expect", "code"),
    [
        (make_row, "", 0),
        (fails_under_none, "", 1),
        (fails_under_none, EXPECT, 0),
        (make_row, EXPECT, 1),
        (lambda request: make_row(request, "dense"), EXPECT, 1),
        (lambda request: make_row(request, "setup_error"), EXPECT, 3),
        (lambda request: make_row(request, "out_of_memory" if request.repeat else "ok"), "", 0),
        (lambda request: make_row(request, "skipped"), "", 3),
    ],
)
def test_exit_codes(
    run: Run, executor: FakeExecutor, tmp_path: Path, outcome: Callable[..., Row], expect: str, code: int
) -> None:
    (tmp_path / "m.toml").write_text(MATRIX + expect)
    executor.outcome = outcome
    assert run()[0] == code


def test_nothing_that_can_run_here_is_exit_3(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('schema = 1\n[axes]\nbackend = ["inductor"]\n')
    code, out, _ = run()
    assert code == 3
    assert executor.ran == []
    assert "no flex_attention with gradients on the CPU" in " ".join(out.split())


def test_more_memory_than_there_is_is_skipped_before_anything_starts(
    run: Run, executor: FakeExecutor, tmp_path: Path
) -> None:
    table = "[pipeline]\nhidden_size = 1000000\ntarget_layers = 9\n"
    (tmp_path / "m.toml").write_text(f'schema = 1\n[axes]\ndrafters = [1, 2]\n{table}')
    code, out, _ = run()
    assert (code, executor.ran) == (3, [])
    assert re.search(r"drafters=2: devices=cpu needs at least \S+ GiB on cpu for 2 drafters of", " ".join(out.split()))
    rows = [json.loads(line) for line in (tmp_path / "run" / "results.jsonl").read_text().splitlines()]
    assert [row["outcome"] for row in rows] == ["skipped"] * 2


def test_options_reach_the_trials(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    requests: list[TrialRequest] = []

    def outcome(request: TrialRequest) -> Row:
        requests.append(request)
        return make_row(request)

    def make(name: str, *, python: str, jobs: int) -> FakeExecutor:
        made.append((name, python, jobs))
        return FakeExecutor(outcome)

    monkeypatch.setattr(executors, "make_executor", make)
    run("--jobs", "3", "--repeats", "1", "--only", "lock=none", "--timeout", "9")
    assert made == [("local", sys.executable, 3)]
    assert [request.trial_id for request in requests] == ["default--r0", "checkpoint=reentrant--r0"]
    assert {request.timeout_s for request in requests} == {9}


def test_a_second_run_in_the_same_folder_is_refused(run: Run, executor: FakeExecutor) -> None:
    run()
    code, out, err = run()
    assert (code, out) == (2, "")
    assert err.startswith("error: run already holds a run")


def test_a_finished_run_resumes_to_the_same_answer(run: Run, executor: FakeExecutor) -> None:
    executor.outcome = fails_under_none
    _, before, _ = run("--json")
    ran = list(executor.ran)
    code, after, _ = run("--json", "--resume")
    assert executor.ran == ran
    assert comparable(json.loads(before)) == comparable(json.loads(after))
    assert code == 1


def test_interrupted_and_resumed_is_as_good_as_never_interrupted(run: Run, executor: FakeExecutor) -> None:
    """20 random interrupts, some of which fall into a run that resumes."""
    executor.outcome = fails_under_none
    _, whole, _ = run("--json", "--repeats", "5")
    dice = random.Random(2)
    for number in range(10):
        executor.ran.clear()
        name = f"run{number}"
        executor.before = interrupt_at(dice.randrange(19))
        code, out, err = run("--json", "--repeats", "5", out=name)
        assert (code, json.loads(out)["interrupted"]) == (3, True)
        assert "Ctrl-C again" in err
        executor.before = interrupt_at(dice.randrange(max(1, 19 - len(executor.ran))))
        assert run("--json", "--resume", matrix=None, out=name)[0] == 3
        executor.before = lambda number: None
        code, resumed, _ = run("--json", "--resume", matrix=None, out=name)
        assert code == 1
        assert comparable(json.loads(resumed)) == comparable(json.loads(whole))
        assert len(executor.ran) == len(set(executor.ran)) == 20


def test_what_must_happen_is_not_missed_while_trials_are(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MATRIX + EXPECT)
    executor.before = interrupt_at(1)
    code, out, _ = run("--json")
    assert code == 3
    kinds = [judgement["kind"] for scenario in json.loads(out)["scenarios"] for judgement in scenario["judgements"]]
    assert kinds == ["met"]


def test_resume_without_a_folder_takes_the_latest(run: Run, executor: FakeExecutor) -> None:
    executor.before = interrupt_at(2)
    _, out, _ = run("--json", "--repeats", "3", out=None)
    executor.before = lambda number: None
    code, again, err = run("--json", "--resume", matrix=None, out=None)
    assert code == 0
    assert json.loads(again)["run_dir"] == json.loads(out)["run_dir"]
    assert {scenario["trials"] for scenario in json.loads(again)["scenarios"]} == {3}
    assert "2 from before" in err


def test_resume_can_add_trials(run: Run, executor: FakeExecutor) -> None:
    run()
    _, out, _ = run("--json", "--resume", "--repeats", "3")
    assert {scenario["trials"] for scenario in json.loads(out)["scenarios"]} == {3}
    assert len(executor.ran) == 12


def test_resume_of_another_matrix_is_refused_with_the_difference(
    run: Run, executor: FakeExecutor, tmp_path: Path
) -> None:
    run()
    (tmp_path / "m.toml").write_text(MATRIX.replace('"reentrant"', '"non_reentrant"').replace("= 2", "= 4"))
    code, _, err = run("--resume")
    assert code == 2
    assert err.count("\n") == 1
    assert "defaults.repeats was 2, is 4" in err
    assert "axes.checkpoint without 'reentrant' and with 'non_reentrant'" in err


def test_resume_does_not_mind_comments(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    run()
    (tmp_path / "m.toml").write_text("# better explained\n" + MATRIX)
    assert run("--resume")[0] == 0


def test_resume_with_another_torch_is_refused(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    run()
    file = tmp_path / "run" / "environment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "torch": "1.0"}))
    code, _, err = run("--resume")
    assert code == 2
    assert "begun with torch 1.0" in err


def test_a_cut_last_line_is_said_and_its_trial_runs_again(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    run()
    results = tmp_path / "run" / "results.jsonl"
    results.write_bytes(results.read_bytes()[:-40])
    executor.ran.clear()
    code, _, err = run("--resume")
    assert code == 0
    assert "kept aside in results.cut" in err
    assert executor.ran == ["lock=first_step,checkpoint=reentrant--r1"]


def test_a_cut_run_folder_begins_anew(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    """Killed after matrix.toml, before anything else was written."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "matrix.toml").write_text(MATRIX)
    assert run("--resume", matrix=None)[0] == 0
    assert len(executor.ran) == 8


TWICE = """
import os, signal
from pathlib import Path
from harness.control.interrupts import Interrupts, continues
with Interrupts(lambda: print("first", flush=True), continues("harness run", Path("a b"))):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            print("not at once", flush=True)
"""


def test_ctrl_c_twice_stops_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (3, "first\n")
    assert "stopped at once; harness run --resume --out 'a b' continues" in done.stderr


def test_ctrl_c_waits_while_a_row_is_written() -> None:
    from harness.control.interrupts import Interrupts

    said: list[str] = []

    def write(interrupts: Interrupts) -> None:
        with interrupts.held():
            with interrupts.held():
                signal.raise_signal(signal.SIGINT)
            said.append("written")
        said.append("went on")

    with Interrupts(lambda: said.append("first")) as interrupts, pytest.raises(KeyboardInterrupt):
        write(interrupts)
    assert said == ["first", "written"]


def test_the_handlers_of_before_come_back() -> None:
    from harness.control.interrupts import Interrupts

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts(lambda: None):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
