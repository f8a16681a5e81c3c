"""Which files are tests, how scenarios are selected, and what is said of bad input and wrong usage."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import FakeExecutor
from plugin_support import MATRIX, fake_executor, in_process

pytest_plugins = ["pytester"]

USAGE_ERROR = 4


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """Every inner pytest gets this one."""
    return fake_executor(monkeypatch)


def test_other_toml_files_are_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makefile(
        ".toml",
        pyproject='[project]\nname = "x"\n',
        broken="this is = = no TOML",
        cargo="[package]\nschema = 1\n",
        axes="[axes]\nx = 1\n",
        mine=MATRIX,
    )
    (pytester.path / "latin.toml").write_bytes(b"name = '\xff'\n")
    result = in_process(pytester, "--collect-only", "-q")
    result.stdout.fnmatch_lines(["mine.toml::default", "mine.toml::lock=first_step", "2 tests collected*"])
    assert result.ret == 0


def test_the_copy_in_a_run_folder_is_no_test(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    pytester.makefile(".toml", mine=MATRIX)
    in_process(pytester, "mine.toml", "--harness-out", "here").assert_outcomes(passed=2)
    result = in_process(pytester, "--collect-only", "-q")
    result.stdout.fnmatch_lines(["2 tests collected*"])
    result = in_process(pytester, "here/matrix.toml", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["here/matrix.toml::default"])


def test_a_run_without_matrices_is_untouched(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it():\n    pass\n")
    result = in_process(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*harness =*")
    assert not (pytester.path / "reports").exists()


@pytest.mark.parametrize(
    ("select", "names"),
    [
        (["-k", "first_step"], ["lock=first_step", "lock=first_step,checkpoint=reentrant"]),
        (["-m", "harness(lock='none')"], ["default", "checkpoint=reentrant"]),
        (["-m", "harness(lock='none', checkpoint='none')"], ["default"]),
        (["-m", "not harness"], []),
        (["--deselect", "mine.toml::default", "-m", "harness(lock='none')"], ["checkpoint=reentrant"]),
    ],
)
def test_scenarios_are_selected_as_tests_are(pytester: pytest.Pytester, select: list[str], names: list[str]) -> None:
    if "(" in select[-1] and pytest.version_tuple < (8, 3):
        pytest.skip("markers are selected by keyword from pytest 8.3 on")
    pytester.makefile(
        ".toml", mine='schema = 1\n[axes]\nlock = ["none", "first_step"]\ncheckpoint = ["none", "reentrant"]\n'
    )
    result = in_process(pytester, "mine.toml", "--collect-only", "-q", "--strict-markers", *select)
    assert [line.partition("::")[2] for line in result.outlines if "::" in line] == names


def test_collecting_makes_no_run_folder(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    pytester.makefile(".toml", mine=MATRIX)
    in_process(pytester, "mine.toml", "--collect-only")
    assert not (pytester.path / "reports").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('schema = 1\n[axes]\nlok = ["none"]\n', '*bad.toml: [[]axes]*"lok"*did you mean "lock"*'),
        ('schema = 1\n[axes]\nlock = ["none"\n', "*bad.toml: line *not valid TOML*"),
        ('schema = 9\n[axes]\nlock = ["none"]\n', '*bad.toml: key "schema": this version reads schema 1, not 9'),
        ('[axes]\nlock = ["none"]\n', '*bad.toml: key "schema" is missing*'),
        ("schema = 1\n", "*bad.toml: it names no scenario*"),
        (
            'schema = 1\n[axes]\nlock = ["none"]\n[[expect]]\nwhere = "lock=none"\nmay = ["fx_eror"]\n',
            '*bad.toml: [[][[]expect]] number 1 key "may"*did you mean "fx_error"*',
        ),
    ],
)
def test_bad_input_is_one_line(pytester: pytest.Pytester, text: str, said: str) -> None:
    pytester.makefile(".toml", bad=text)
    result = in_process(pytester, "bad.toml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ERROR collecting bad.toml*", said])
    result.stdout.fnmatch_lines(["ERROR bad.toml - *"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*matrix.py*")


def test_a_bad_matrix_among_good_ones_is_not_passed_over(pytester: pytest.Pytester) -> None:
    pytester.makefile(".toml", mine=MATRIX, worse='schema = 1\n[axes]\nlock = ["none"\n')
    in_process(pytester).assert_outcomes(errors=1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--harness-repeats", "0"], "*--harness-repeats: '0' is not a number of at least 1"),
        (["--harness-jobs", "two"], "*--harness-jobs: 'two' is not a number of at least 1"),
        (["--harness-python", "/nowhere/python"], "ERROR: --harness-python /nowhere/python: no such program*"),
        (["--harness-out", "mine.toml"], "ERROR: cannot write to run folder *mine.toml*--harness-out"),
    ],
)
def test_wrong_usage_is_one_line(
    pytester: pytest.Pytester, executor: FakeExecutor, wrong: list[str], said: str
) -> None:
    pytester.makefile(".toml", mine=MATRIX)
    result = in_process(pytester, "mine.toml", *wrong)
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines([said])
    assert executor.ran == []


def test_a_folder_that_holds_a_run_is_refused(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    pytester.makefile(".toml", mine=MATRIX)
    in_process(pytester, "mine.toml", "--harness-out", "here")
    before = (pytester.path / "here" / "results.jsonl").read_bytes()
    result = in_process(pytester, "mine.toml", "--harness-out", "here")
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *here already holds a run: choose another folder with --harness-out"])
    assert (pytester.path / "here" / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        (lambda path: (path / "matrix.toml").mkdir(parents=True), "ERROR: *mine-2 already holds a run: choose another*"),
        (lambda path: path.write_text("a file"), "ERROR: cannot write to run folder *mine-2*--harness-out"),
    ],
    ids=["holds a run", "is a file"],
)
def test_of_several_run_folders_none_is_begun_where_one_cannot_be(
    pytester: pytest.Pytester, executor: FakeExecutor, blocks: Callable[[Path], object], said: str
) -> None:
    """Else the command would be refused again when that one is out of the way."""
    pytester.makefile(".toml", **{"mine": MATRIX, "more/mine": MATRIX})
    blocked = pytester.mkdir("here") / "mine-2"
    blocks(blocked)
    result = in_process(pytester, "mine.toml", "more/mine.toml", "--harness-out", "here")
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines([said])
    assert not [path for path in (pytester.path / "here" / "mine").glob("*") if path.name != ".lock"]
    blocked.rename("away")
    in_process(pytester, "mine.toml", "more/mine.toml", "--harness-out", "here").assert_outcomes(passed=4)


NO_WORKLOAD = '[[include]]\nworkload = "no_such_module:W"\n'


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (NO_WORKLOAD, '*mine.toml: workload = "no_such_module:W": no module*run pytest in the folder*PYTHONPATH=FOLDER'),
        ('[pipeline]\ndata = "missing.jsonl"\n', '*mine.toml: [[]pipeline] key "data": no file*run pytest from*'),
    ],
)
def test_what_no_trial_would_find_is_one_line_before_any_runs(
    pytester: pytest.Pytester, executor: FakeExecutor, more: str, said: str
) -> None:
    pytester.makefile(".toml", mine=MATRIX + more)
    result = in_process(pytester, "mine.toml")
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert executor.ran == []
    assert not (pytester.path / "reports").exists()


def test_what_only_deselected_scenarios_name_is_not_looked_for(
    pytester: pytest.Pytester, executor: FakeExecutor
) -> None:
    pytester.makefile(".toml", mine=MATRIX + NO_WORKLOAD)
    in_process(pytester, "mine.toml", "-k", "not no_such_module").assert_outcomes(passed=2, deselected=1)


def test_a_bad_matrix_beside_a_good_one_makes_no_run_folder(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    pytester.makefile(".toml", mine=MATRIX, bad="schema = 1\n[axes]\n")
    in_process(pytester, "mine.toml", "bad.toml").assert_outcomes(errors=1)
    assert not (pytester.path / "reports").exists()
    in_process(pytester, "mine.toml", "bad.toml", "--continue-on-collection-errors").assert_outcomes(passed=2, errors=1)


def test_several_matrices_have_a_run_folder_each(pytester: pytest.Pytester, executor: FakeExecutor) -> None:
    for name in ("a/mine", "b/mine", "b/other"):
        path = pytester.path / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(MATRIX)
    in_process(pytester, "a", "b", "--harness-out", "here").assert_outcomes(passed=6)
    assert sorted(path.parent.name for path in (pytester.path / "here").glob("*/results.jsonl")) == [
        "mine",
        "mine-2",
        "other",
    ]


def test_the_plugin_imports_nothing_heavy_until_it_meets_a_matrix(tmp_path: Path) -> None:
    script = (
        "import sys, pytest\n"
        "import harness.pytest_plugin\n"
        "found = {name.split('.')[1] for name in sys.modules if name.startswith('harness.')}\n"
        "assert found == {'pytest_plugin', 'pytest_support'}, found\n"
        "heavy = {'torch', 'pandas', 'scipy', 'numpy', 'rich', 'jinja2', 'typer'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "pytest.main(['-p', 'no:cacheprovider', '-q', '--collect-only'], plugins=[harness.pytest_plugin])\n"
        "assert 'harness.core.matrix' in sys.modules\n"
        "heavy = {'torch', 'pandas', 'scipy', 'numpy', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    (tmp_path / "mine.toml").write_text(MATRIX)
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
