"""What a scenario as a test shows: passed, failed with its words, skipped, in JUnit and in pytest's last lines."""

from __future__ import annotations

import json
import re
import shutil
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from fake_runs import FX_ERROR, FakeExecutor, fx_row, make_row
from plugin_support import MATRIX, fake_executor, in_process, rows_of

from harness import cli
from harness.control import executors
from harness.control.request import Row, TrialRequest
from harness.control.results import read_environment
from harness.core.errors import RunFolderError
from harness.core.matrix import parse_matrix
from harness.report import html
from harness.report.rundata import read_run

pytest_plugins = ["pytester"]

WRITE_REPORT = html.write_report


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """Every inner pytest gets this one."""
    return fake_executor(monkeypatch)


def fails_under(lock: str) -> object:
    def outcome(request: TrialRequest) -> Row:
        return fx_row(request.scenario, request.repeat) if request.scenario.lock == lock else make_row(request)

    return outcome


def test_scenarios_are_tests(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["mine.toml::default PASSED*", "mine.toml::lock=first_step PASSED*"])
    assert executor.closed
    assert executor.ran == [
        "default--r0",
        "default--r1",
        "lock=first_step--r0",
        "lock=first_step--r1",
    ]


def test_a_failure_says_who_collided_and_how_to_see_it_again(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    executor.outcome = fails_under("first_step")  # type: ignore[assignment]
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml", "--harness-repeats", "3")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ lock=first_step _*",
            "broken: only ok where lock=first_step: fx_error in 3 of 3 trials",
            "*lock=first_step*",
            "*unsafe 3/3*: 3 fx_error in 3 trials, torch 2.11.0+cpu",
            "fx_error in 3 trials: RuntimeError: Detected that you are using FX*",
            f"*fingerprint {FX_ERROR['fingerprint']}",
            "*drafter-1 (thread Thread-2) in attention, step 0",
            "*while drafter-0 (thread Thread-1) was tracing in mask",
            "*stack of drafter-1, which failed:",
            "*the traceback",
            "*stack of drafter-0, which was tracing:",
            "*the stack",
            "evidence  reports/mine-*/trials/lock=first_step--r0/*",
            "again     pytest mine.toml::lock=first_step --harness-repeats 3",
            "FAILED mine.toml::lock=first_step - broken: only ok*",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")  # no traceback of ours


def test_the_command_of_a_failure_runs_that_scenario(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml::lock=first_step", "--harness-repeats", "3")
    result.assert_outcomes(passed=1)
    assert len([name for name in executor.ran if name.startswith("lock=first_step")]) == 3


def test_a_failure_that_nothing_permits_fails(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    executor.outcome = fails_under("none")  # type: ignore[assignment]
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["unexpected: fx_error in 2 of 2 trials: nothing permits it"])


def test_what_must_happen_passes_when_it_happens_and_fails_when_not(
    pytester: pytest.Pytester, executor: FakeExecutor
) -> None:
    executor.outcome = fails_under("none")  # type: ignore[assignment]
    pytester.makefile(
        ".toml",
        mine='schema = 1\n[axes]\nlock = ["none", "per_call"]\n[[expect]]\nwhere = "lock=*"\nmust = ["fx_error"]\n',
    )
    result = in_process(pytester, "mine.toml", "-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*::default PASSED*", "broken: must fx_error where lock=[*]: no fx_error in 1 trial"])


def test_a_scenario_that_cannot_run_here_is_skipped_with_its_reason(
    pytester: pytest.Pytester, executor: FakeExecutor
) -> None:
    pytester.makefile(".toml", mine='schema = 1\n[axes]\ndevices = ["cuda:99"]\n')
    result = in_process(pytester, "mine.toml", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*mine.toml:1: devices=cuda:99 needs*"])
    (run,) = (pytester.path / "reports").glob("mine-*")
    assert [row["outcome"] for row in rows_of(run)] == ["skipped"]
    assert executor.ran == []


def test_a_scenario_that_asks_for_more_memory_than_there_is_is_skipped(
    pytester: pytest.Pytester, executor: FakeExecutor
) -> None:
    pytester.makefile(".toml", mine='schema = 1\n[axes]\nlock = ["none"]\n[pipeline]\nhidden_size = 1000000\n')
    result = in_process(pytester, "mine.toml", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*devices=cpu needs at least * GiB on cpu *"])
    assert executor.ran == []


def test_a_subject_may_skip_as_well(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    executor.outcome = lambda request: make_row(request, "skipped", reason="no such thing here")
    pytester.makefile(".toml", mine='schema = 1\n[axes]\nlock = ["none"]\n')
    result = in_process(pytester, "mine.toml", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no such thing here"])


@pytest.mark.parametrize("label", ["setup_error", "out_of_memory"])
def test_trials_that_say_nothing_fail_with_their_reason(
    pytester: pytest.Pytester, executor: FakeExecutor, label: str
) -> None:
    executor.outcome = lambda request: make_row(request, label, reason="the reason")
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"incomplete: 2 {label} in 2 trials: the reason"])


def test_some_trials_that_say_nothing_are_a_warning(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    executor.outcome = lambda request: make_row(request, "out_of_memory" if request.repeat else "ok")
    pytester.makefile(".toml", mine=MATRIX)
    with warnings.catch_warnings():  # of the inner pytest; the outer one may turn warnings into errors
        warnings.simplefilter("default")
        result = in_process(pytester, "mine.toml")
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(["*IncompleteWarning: 1 of 2 trials say nothing: 1 ok, 1 out_of_memory in 2 trials"])


def test_junit_holds_ids_outcomes_and_counts(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    executor.outcome = fails_under("first_step")  # type: ignore[assignment]
    pytester.makefile(".toml", mine=MATRIX)
    in_process(pytester, "mine.toml", "--junitxml=j.xml", "--harness-out", "here").assert_outcomes(passed=1, failed=1)
    cases = {case.get("name"): case for case in ET.parse(pytester.path / "j.xml").iter("testcase")}
    assert set(cases) == {"default", "lock=first_step"}
    found = {entry.get("name"): entry.get("value") for entry in cases["lock=first_step"].iter("property")}
    assert json.loads(str(found.pop("outcomes"))) == {"fx_error": 2}
    assert found == {
        "scenario": "lock=first_step",
        "verdict": "unsafe",
        "trials": "2",
        "failures": "2",
        "run_dir": str(pytester.path / "here"),
    }
    (failure,) = cases["lock=first_step"].iter("failure")
    assert failure.get("message") == "broken: only ok where lock=first_step: fx_error in 2 of 2 trials"
    assert "fingerprint" in str(failure.text)
    assert not list(cases["default"].iter("failure"))


def test_the_last_lines_name_run_folder_and_report(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    executor.outcome = fails_under("none")  # type: ignore[assignment]
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml", "--harness-out", "here")
    result.stdout.fnmatch_lines(
        ["*= harness =*", "mine.toml: 1 unsafe, 1 undecided", "*run folder: here", "*report: * here/report.html"]
    )
    assert (pytester.path / "here" / "report.html").exists()
    environment = json.loads((pytester.path / "here" / "environment.json").read_text())
    assert environment["command"][0] == "pytest"
    assert "mine.toml" in environment["command"]
    assert environment["options"]["repeats"] == 2


def test_a_fault_of_ours_keeps_its_traceback_and_costs_the_executor(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the trials is ended before the next test begins, with an executor of its own."""

    def fails(request: TrialRequest) -> Row:
        if request.scenario.lock == "none":
            raise ZeroDivisionError("a bug")
        return make_row(request)

    fake_executor(monkeypatch)
    made: list[FakeExecutor] = []

    def make_executor(name: str, *, python: str | None, jobs: int) -> FakeExecutor:
        assert all(executor.closed for executor in made)
        made.append(FakeExecutor(fails))
        return made[-1]

    monkeypatch.setattr(executors, "make_executor", make_executor)
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml", "--harness-out", "here")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ZeroDivisionError: a bug"])
    assert [executor.closed for executor in made] == [True, True]
    assert [row["outcome"] for row in rows_of(pytester.path / "here")] == ["interrupted", "ok", "ok"]


def test_what_the_user_can_mend_is_one_line(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    def full(request: TrialRequest) -> Row:
        raise RunFolderError("cannot write to run folder here: No space left on device; choose another with --out")

    executor.outcome = full
    pytester.makefile(".toml", mine='schema = 1\n[axes]\nlock = ["none"]\n')
    result = in_process(pytester, "mine.toml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["cannot write to run folder here: No space left*", "FAILED mine.toml::default - cannot*"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*runner.py*")


def test_a_second_run_of_a_test_judges_the_same_trials(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    """A plugin that runs a failed test again does not roll the dice again."""
    executor.outcome = fails_under("none")  # type: ignore[assignment]
    pytester.makefile(".toml", mine='schema = 1\n[axes]\nlock = ["none"]\n')
    pytester.makeconftest(
        "from _pytest.runner import runtestprotocol\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    runtestprotocol(item, nextitem=nextitem, log=False)\n"
        "    for report in runtestprotocol(item, nextitem=nextitem, log=False):\n"
        "        item.ihook.pytest_runtest_logreport(report=report)\n"
        "    return True\n"
    )
    result = in_process(pytester, "mine.toml", "--junitxml=j.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["unexpected: fx_error in 1 of 1 trial: nothing permits it"])
    assert executor.ran == ["default--r0"]
    (run,) = (pytester.path / "reports").glob("mine-*")
    assert len(rows_of(run)) == 1
    assert len(list(ET.parse(Path(pytester.path / "j.xml")).iter("property"))) == 6


def test_the_command_line_finishes_what_pytest_began(
    pytester: pytest.Pytester, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    """And runs nothing that was not selected."""

    def interrupt(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt

    executor.before = interrupt
    pytester.makefile(".toml", mine=MATRIX)
    with pytest.raises(KeyboardInterrupt):
        in_process(pytester, "mine.toml", "-k", "first_step", "--harness-out", "here")
    assert executor.ran == ["lock=first_step--r0"]
    executor.before = lambda number: None
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--resume", "--out", "here", "-q"])
    assert ended.value.code == 0
    assert executor.ran == ["lock=first_step--r0", "lock=first_step--r1"]


@pytest.mark.parametrize(
    ("select", "only"),
    [
        ([], None),
        (["-k", "first_step"], "lock=first_step"),
        (["--deselect", "mine.toml::default"], "checkpoint=reentrant or lock=first_step"),
        (["mine.toml::lock=first_step"], "lock=first_step and checkpoint=none"),
    ],
)
def test_the_selection_is_recorded(
    pytester: pytest.Pytester, executor: FakeExecutor, select: list[str], only: str | None
) -> None:
    """In the words of `--only`, so that a report calls nothing "not run" that was not to run."""
    pytester.makefile(
        ".toml", mine='schema = 1\n[axes]\nlock = ["none", "first_step"]\ncheckpoint = ["none", "reentrant"]\n'
    )
    in_process(pytester, *select, "--harness-out", "here")
    assert read_environment(pytester.path / "here")["options"]["only"] == only
    data = read_run(pytester.path / "here")
    assert {item.id for item in data.summary.scenarios} == {name.removesuffix("--r0") for name in executor.ran}
    assert data.not_run == {}


def test_rows_that_were_damaged_meanwhile_cost_only_their_own_summary(
    pytester: pytest.Pytester, executor: FakeExecutor
) -> None:
    def damages(request: TrialRequest) -> Row:
        run = request.folder.parents[1]
        if run.name == "mine":
            with open(run / "results.jsonl", "a") as file:
                file.write("no row\n")
        return make_row(request)

    executor.outcome = damages
    pytester.makefile(".toml", mine='schema = 1\n[axes]\nlock = ["none"]\n', other=MATRIX)
    result = in_process(pytester, "mine.toml", "other.toml", "--harness-out", "here")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "mine.toml: not judged: *here/mine/results.jsonl, line 1: not a row of results*",
            "*run folder: here/mine",
            "other.toml: 2 undecided",
            "*report: * here/other/report.html",
        ]
    )
    assert (pytester.path / "here" / "other" / "report.html").exists()


@pytest.mark.parametrize("again", [False, True], ids=["removed", "replaced"])
def test_a_run_folder_that_was_removed_meanwhile_fails_its_tests(
    pytester: pytest.Pytester, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """None passes of which no row is left."""

    def removes(request: TrialRequest) -> Row:
        if request.scenario.lock == "none":
            shutil.rmtree(request.folder.parents[1])
            if again:
                request.folder.mkdir(parents=True)
                (request.folder.parents[1] / "results.jsonl").touch()
        return make_row(request)

    executor.outcome = removes
    monkeypatch.setattr(html, "write_report", WRITE_REPORT)
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml", "--harness-out", "here", "--harness-repeats", "1")
    result.assert_outcomes(failed=2)
    lost = "*here was removed or replaced while its tests ran: the trials in it are lost"
    result.stdout.fnmatch_lines([lost, lost, f"mine.toml: not judged: {lost}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert executor.ran == ["default--r0"]


def test_the_matrix_of_the_documentation_is_one() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "pytest.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    found = parse_matrix(text, file="docs/pytest.md")
    assert (len(found.scenarios), found.repeats, len(found.expectations)) == (6, 5, 2)
