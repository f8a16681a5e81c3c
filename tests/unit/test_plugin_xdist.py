"""Under pytest-xdist: one run folder, one results file, one executor a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from fake_runs import FakeExecutor, make_row
from plugin_support import CONFTEST, arguments, rows_of

from harness.analysis.fairness import fairness
from harness.control import results
from harness.control.request import TrialRequest
from harness.control.shared import SharedReferences, begin_shared, join_shared, locked
from harness.control.suites import SuiteOptions, Suites
from harness.core.errors import RunFolderError
from harness.core.scenario import Scenario
from harness.report.rundata import read_run

pytest.importorskip("xdist")

pytest_plugins = ["pytester"]

HERE = Path(__file__).resolve().parent
WIDE = 'schema = 1\n[defaults]\nrepeats = 2\n[axes]\nlock = ["none", "first_step"]\nsteps = [1, 2, 3, 4, 5, 6]\n'


@pytest.fixture
def spread(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder whose inner pytests, of several processes, have an executor that makes its rows up."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parents[1])]))
    pytester.makeconftest(CONFTEST)
    pytester.makefile(".toml", mine=WIDE)
    return pytester


@pytest.mark.parametrize("workers", ["1", "3"])
def test_workers_fill_one_results_file(spread: pytest.Pytester, workers: str) -> None:
    result = spread.runpytest_subprocess(*arguments("mine.toml", "-n", workers, "--junitxml=j.xml"))
    result.assert_outcomes(passed=6, failed=6)
    (run,) = (spread.path / "reports").glob("mine-*")
    assert Counter(row["trial"] for row in rows_of(run)) == {
        f"{name}--r{repeat}": 1 for repeat in (0, 1) for name in {row["scenario_id"] for row in rows_of(run)}
    }
    assert len(rows_of(run)) == 24
    result.stdout.fnmatch_lines(["mine.toml: 6 unsafe, 6 undecided", f"*run folder: reports/{run.name}"])
    result.stdout.fnmatch_lines(["*while drafter-0 (thread Thread-1) was tracing in mask"])
    made = (spread.path / "executors.txt").read_text().split()
    assert len(made) == len(set(made)) <= int(workers), "one a worker, none on the controller"
    environment = json.loads((run / "environment.json").read_text())
    assert environment["command"][0] == "pytest"
    assert environment["options"]["jobs"] == int(workers)
    assert (spread.path / "j.xml").read_text().count('name="verdict"') == 12


def test_each_reference_is_made_once(spread: pytest.Pytester) -> None:
    """Two scenarios share one, and the workers share six."""
    spread.runpytest_subprocess(*arguments("mine.toml", "-n", "3")).assert_outcomes(passed=6, failed=6)
    made = (spread.path / "references.txt").read_text().split()
    assert len(made) == len(set(made)) == 6
    (run,) = (spread.path / "reports").glob("mine-*")
    assert {row["reference"] for row in rows_of(run)} == set(made)


def test_selection_and_a_given_folder(spread: pytest.Pytester) -> None:
    result = spread.runpytest_subprocess(
        *arguments("mine.toml", "-n", "2", "-k", "first_step", "--harness-out", "here", "--harness-repeats", "1")
    )
    result.assert_outcomes(passed=6)
    assert len(rows_of(spread.path / "here")) == 6
    data = read_run(spread.path / "here")
    assert (len(data.summary.scenarios), data.not_run) == (6, {})


def test_the_selection_of_grouped_tests_is_recorded(spread: pytest.Pytester) -> None:
    """pytest-xdist adds the group to a test's id."""
    spread.makeconftest(
        CONFTEST + "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items:\n        item.add_marker(pytest.mark.xdist_group('one'))\n"
    )
    result = spread.runpytest_subprocess(
        *arguments("mine.toml", "-n", "1", "--dist", "loadgroup", "-k", "first_step", "--harness-out", "here")
    )
    result.assert_outcomes(passed=6)
    options = json.loads((spread.path / "here" / "environment.json").read_text())["options"]
    assert options["only"] == "lock=first_step"


def test_ids_that_another_plugin_has_changed_select_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a scenario that ran would be left out by a resume."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text(WIDE)
    suites = Suites(SuiteOptions(tmp_path / "here", tmp_path / "reports", "now", None, None, 1, ["pytest"]))
    suites.expect({file: ["default", "default[1-2]"]})
    suites.begin(workers=1)
    (begun,) = suites.finish()
    assert begun.environment["options"]["only"] is None
    begun.folder.close()


def test_speeds_of_workers_are_not_compared_with_those_of_one_trial_at_a_time(spread: pytest.Pytester) -> None:
    """They run trials beside each other, as `--jobs` does, and the two multiply."""
    more = ["--harness-repeats", "1", "-k", "first_step"]
    spread.runpytest_subprocess(*arguments("mine.toml", "-n", "2", "--harness-jobs", "2", "--harness-out", "two", *more))
    spread.runpytest_subprocess(*arguments("mine.toml", "--harness-out", "one", *more))
    two, one = (results.read_environment(spread.path / name) for name in ("two", "one"))
    assert fairness(two, one, ({}, {}), ((), ())).speed == ("other --jobs: 4 → 1",)


def test_an_error_of_collection_stops_no_scenario(spread: pytest.Pytester) -> None:
    """Nor does it stop any other test of a worker."""
    spread.makepyfile(test_broken="import no_such_module\n", test_good="def test_it():\n    pass\n")
    spread.makefile(".toml", broken="schema = 1\n[axes]\n")
    result = spread.runpytest_subprocess(*arguments("-n", "1", "--harness-out", "here", "--harness-repeats", "1"))
    result.assert_outcomes(passed=7, failed=6, errors=2)
    result.stdout.no_fnmatch_line("*KeyError*")
    result.stdout.fnmatch_lines(["mine.toml: 6 unsafe, 6 undecided"])
    assert len(rows_of(spread.path / "here")) == 12


def test_no_run_folder_is_begun_when_the_first_error_ends_the_session(spread: pytest.Pytester) -> None:
    spread.makepyfile(test_broken="import no_such_module\n")
    spread.runpytest_subprocess(*arguments("-n", "2", "-x")).assert_outcomes(errors=1)
    assert not (spread.path / "reports").exists()


def test_nothing_is_made_when_no_matrix_is_tested(spread: pytest.Pytester) -> None:
    spread.makepyfile(test_it="def test_it():\n    pass\n")
    spread.runpytest_subprocess(*arguments("test_it.py", "-n", "2")).assert_outcomes(passed=1)
    assert not (spread.path / "reports").exists()


def test_a_folder_that_holds_a_run_is_refused(spread: pytest.Pytester) -> None:
    (spread.path / "here").mkdir()
    (spread.path / "here" / "results.jsonl").write_text("")
    result = spread.runpytest_subprocess(*arguments("mine.toml", "-n", "2", "--harness-out", "here"))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *here already holds a run: choose another folder with --harness-out"])


def test_the_same_trials_for_every_worker_are_refused(spread: pytest.Pytester) -> None:
    result = spread.runpytest_subprocess(*arguments("mine.toml", "--dist", "each", "--tx", "2*popen"))
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --dist each*use --dist load"])


def test_a_matrix_outside_the_root_folder_is_refused(spread: pytest.Pytester) -> None:
    root = spread.mkdir("root")
    result = spread.runpytest_subprocess(*arguments("mine.toml", "-n", "1", "--rootdir", str(root)))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*mine.toml: under pytest-xdist it must be below the root folder*"])
    result = spread.runpytest_subprocess(*arguments("mine.toml", "-q", "--collect-only", "--rootdir", str(root)))
    result.stdout.fnmatch_lines(["12 tests collected*"])


def test_rows_of_several_writers_do_not_mix(tmp_path: Path) -> None:
    """Rows far longer than a pipe's or a page's size, from processes that write at the same time."""
    folder = begin_shared(tmp_path / "run")
    folder.open_results(lambda note: None)
    children = []
    for writer in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                own = join_shared(tmp_path / "run")
                for number in range(20):
                    own.append({"trial": f"{writer}-{number}", "outcome": "ok", "stuff": str(writer) * 300_000})
                os._exit(0)
            except BaseException:  # noqa: BLE001  # a child must never go on as the test
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    rows = rows_of(tmp_path / "run")
    assert len(rows) == 80
    assert all(set(row["stuff"]) == {row["trial"][0]} for row in rows)
    folder.close()


def test_a_writer_waits_for_the_lock_of_the_results(tmp_path: Path) -> None:
    """Else a row that is taken back because the disk is full could take another's with it."""
    folder = begin_shared(tmp_path / "run")
    folder.open_results(lambda note: None)
    written = threading.Event()

    def write() -> None:
        folder.append({"trial": "x--r0", "outcome": "ok"})
        written.set()

    with locked(folder._guard):
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        assert not written.wait(0.3)
        assert rows_of(tmp_path / "run") == []
    assert written.wait(10)
    assert len(rows_of(tmp_path / "run")) == 1
    folder.close()


def test_a_reference_is_waited_for(tmp_path: Path) -> None:
    """A worker that needs one which another is making takes that."""
    making, made = threading.Event(), threading.Event()
    runs: list[str] = []

    class Makes(FakeExecutor):
        def run(self, trials, on_start, on_row):  # type: ignore[no-untyped-def]
            runs.append(threading.current_thread().name)
            making.set()
            assert made.wait(10)
            (trials[0].folder / "result.json").write_text(json.dumps(make_row(trials[0])))
            super().run(trials, on_start, on_row)

    request = TrialRequest("x--r0", Scenario(), 0, tmp_path / "x")
    waiting = SharedReferences(tmp_path, "float32")
    other = SharedReferences(tmp_path, "float32")
    maker = threading.Thread(target=other.prepare, args=(other.firsts([request]), Makes()), name="maker", daemon=True)
    waiter = threading.Thread(target=waiting.prepare, args=(other.firsts([request]), Makes()), name="waiter", daemon=True)
    maker.start()
    assert making.wait(10)
    waiter.start()
    waiter.join(0.3)
    assert waiter.is_alive()
    made.set()
    for thread in (maker, waiter):
        thread.join(10)
        assert not thread.is_alive()
    assert runs == ["maker"]
    assert waiting.key_of(request) in waiting._known


def test_a_folder_of_another_session_is_not_joined(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run folder that this session has begun"):
        join_shared(tmp_path / "nowhere")
    folder = begin_shared(tmp_path / "run")
    with pytest.raises(RunFolderError, match="in use by another run"):
        begin_shared(tmp_path / "run")
    folder.close()


def test_sessions_of_the_same_second_have_a_folder_each(spread: pytest.Pytester) -> None:
    """As `tox -p` starts them."""
    command = [sys.executable, "-m", "pytest", *arguments("mine.toml", "-q", "-p", "no:cacheprovider")]
    running = [
        subprocess.Popen(command, cwd=spread.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [1, 1], "\n".join(said)
    assert len(list((spread.path / "reports").glob("mine-*/results.jsonl"))) == 2
