"""`harness run --update-expect`: the file, the difference, the exit code, and what is refused."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import MATRIX, FakeExecutor, fx_row, make_row

from harness import cli
from harness.control import executors
from harness.control.request import Row, TrialRequest
from harness.core.matrix import load_matrix

Run = Callable[..., tuple[int, str, str]]

TABLE = '[[expect]]\nwhere = "lock=none"\ntorch = "==2.11.*"\nmay = ["fx_error"]\n'


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """Every run of the test gets this one, under which trials without a lock fail."""
    fake = FakeExecutor(fails_without_a_lock)
    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: fake)
    return fake


def fails_without_a_lock(request: TrialRequest) -> Row:
    return fx_row(request.scenario, request.repeat) if request.scenario.lock == "none" else make_row(request)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit code, standard output, standard error) of `harness run … --update-expect`, in a folder with m.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MATRIX)

    def call(*arguments: str, update: bool = True) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", *arguments, *(["--update-expect"] if update else [])])
        assert isinstance(ended.value.code, int)
        return (ended.value.code, *capsys.readouterr())

    return call


def test_the_file_then_expects_what_was_seen(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    code, out, _ = run("m.toml", "--out", "run")
    assert code == 0, "judged by the new expectations"
    after = (tmp_path / "m.toml").read_text()
    assert after.startswith(MATRIX + "\n" + TABLE)
    assert "Updated m.toml:\n\n--- m.toml\n+++ m.toml (updated)\n" in out
    assert '+may = ["fx_error"]\n' in out
    assert (tmp_path / "run" / "matrix.toml").read_text() == after
    assert run("m.toml", "--out", "again", update=False)[0] == 0
    code, out, err = run("m.toml", "--out", "third")
    assert code == 0
    assert "note: nothing to update in m.toml" in err
    assert "Updated" not in out


def test_a_json_document_stays_one(run: Run, executor: FakeExecutor) -> None:
    code, out, err = run("m.toml", "--out", "run", "--json")
    kinds = [judged["kind"] for item in json.loads(out)["scenarios"] for judged in item["judgements"]]
    assert (code, set(kinds)) == (0, {"met"})
    assert '+may = ["fx_error"]\n' in err


def test_a_resumed_run_updates_the_file_it_was_begun_with(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    run("m.toml", "--out", "run", update=False)
    assert (tmp_path / "m.toml").read_text() == MATRIX
    assert run("--resume", "--out", "run")[0] == 0
    assert TABLE in (tmp_path / "m.toml").read_text()
    assert len(executor.ran) == 8, "nothing was run again"
    assert run("m.toml", "--resume", "--out", "run", update=False)[0] == 0, "the copy in the folder changed with it"


def test_only_scenarios_that_were_run_are_updated(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    run("m.toml", "--out", "run", "--only", "checkpoint=reentrant")
    (expectation,) = load_matrix(tmp_path / "m.toml").expectations
    assert str(expectation.where) == "lock=none and checkpoint=reentrant"


def test_an_interrupted_run_updates_nothing(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    executor.before = lambda number: signal.raise_signal(signal.SIGINT) if number == 5 else None
    code, _, err = run("m.toml", "--out", "run")
    assert code == 3
    assert "interrupted, so the expectations of m.toml stay as they are" in err
    assert (tmp_path / "m.toml").read_text() == MATRIX


def test_bytes_that_are_not_the_harness_stay_as_they_are(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    """A mark at the beginning, ends of lines, a link, and who may read it."""
    before = b"\xef\xbb\xbf" + MATRIX.replace("\n", "\r\n").encode()
    (tmp_path / "true.toml").write_bytes(before)
    (tmp_path / "true.toml").chmod(0o640)
    (tmp_path / "link.toml").symlink_to("true.toml")
    assert run("link.toml", "--out", "run")[0] == 0
    after = (tmp_path / "true.toml").read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == after.count(b"\r\n")
    assert (tmp_path / "link.toml").is_symlink()
    assert (tmp_path / "true.toml").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["link.toml", "m.toml", "true.toml"]


def test_a_file_that_changed_meanwhile_is_left_alone(run: Run, executor: FakeExecutor, tmp_path: Path) -> None:
    other = MATRIX.replace("reentrant", "non_reentrant")
    executor.before = lambda number: (tmp_path / "m.toml").write_text(other) and None
    code, _, err = run("m.toml", "--out", "run")
    assert code == 2
    assert (
        err.splitlines()[-1] == "error: --update-expect: m.toml is no longer the matrix that was run; it was left alone"
    )
    assert (tmp_path / "m.toml").read_text() == other


def test_what_cannot_be_updated_is_refused_before_anything_runs(
    run: Run, executor: FakeExecutor, tmp_path: Path
) -> None:
    run("m.toml", "--out", "run", update=False)
    executor.ran.clear()
    (tmp_path / "m.toml").rename(tmp_path / "gone.toml")
    code, _, err = run("--resume", "--out", "run")
    assert (code, "m.toml, with which the run was begun, is not there" in err) == (2, True)
    if os.geteuid():  # nothing is forbidden to root
        (tmp_path / "gone.toml").chmod(0o444)
        code, _, err = run("gone.toml", "--out", "other")
        assert (code, "cannot be written to" in err) == (2, True)
    assert executor.ran == []


def test_the_installed_matrices_are_not_touched(
    run: Run, executor: FakeExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import harness

    (tmp_path / "harness").mkdir()
    (tmp_path / "m.toml").rename(tmp_path / "harness" / "m.toml")
    monkeypatch.setattr(harness, "__file__", str(tmp_path / "harness" / "__init__.py"))
    code, _, err = run("harness/m.toml", "--out", "run")
    assert (code, "is part of the installed package; copy it" in err) == (2, True)
    assert not (tmp_path / "run").exists()


INLINE = 'schema = 1\nexpect = [{where = "lock=none", only = ["ok"]}]\n[axes]\nlock = ["none", "first_step"]\n'


def test_expectations_that_cannot_be_edited_are_refused_before_anything_runs(
    run: Run, executor: FakeExecutor, tmp_path: Path
) -> None:
    """Whether a run would have had something to change or not: that is not known then."""
    (tmp_path / "m.toml").write_text(INLINE)
    code, out, err = run("m.toml", "--out", "run")
    assert (code, out, executor.ran) == (2, "", [])
    assert err.splitlines()[-1].startswith("error: m.toml: cannot edit its expectations; write each as a table of its own")
    run("m.toml", "--out", "other", update=False)
    executor.ran.clear()
    assert run("--resume", "--out", "other", "--repeats", "2")[0] == 2
    assert executor.ran == []
    assert (tmp_path / "m.toml").read_text() == INLINE


def test_a_resumed_run_whose_file_has_become_another_is_refused_before_anything_runs(
    run: Run, executor: FakeExecutor, tmp_path: Path
) -> None:
    run("m.toml", "--out", "run", update=False)
    executor.ran.clear()
    (tmp_path / "m.toml").write_text(MATRIX.replace("reentrant", "non_reentrant"))
    code, out, err = run("--resume", "--out", "run", "--repeats", "3")
    assert (code, out, executor.ran) == (2, "", [])
    assert "m.toml is no longer the matrix that was run" in err


def no_longer(file: Path) -> None:
    file.write_text(MATRIX.replace("reentrant", "non_reentrant"))


def no_text(file: Path) -> None:
    file.write_bytes(b"\xff")


def no_toml(file: Path) -> None:
    file.write_text("[axes")


@pytest.mark.parametrize("change", [no_longer, no_text, no_toml, Path.unlink])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_what_was_run_is_shown_though_the_file_can_no_longer_be_updated(
    run: Run, executor: FakeExecutor, tmp_path: Path, change: Callable[[Path], object], more: list[str]
) -> None:
    def before(number: int) -> None:
        if number == 7:
            change(tmp_path / "m.toml")

    executor.before = before
    code, out, err = run("m.toml", "--out", "run", *more)
    assert code == 2
    assert len(executor.ran) == 8
    assert "unsafe" in out
    assert (tmp_path / "run" / "report.html").exists()
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert "m.toml" in last
