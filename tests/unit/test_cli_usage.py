"""The command line without a run: help, bad input, exit codes, streams."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import MATRIX

from harness import cli
from harness.control.matrices import find_matrix
from harness.core.errors import MatrixError
from harness.core.lockspec import NAMES

ROOT = Path(cli.__file__).parents[1]
LONG = "x" * 400
"""No file can have this name."""
HEAVY = ("torch", "pandas", "scipy", "plotly", "numpy", "rich", "jinja2")


def harness(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd or ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
    )


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Run with bad arguments in an empty folder; the one line that is said, after `error: `."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        assert ended.value.code == 2
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert not (tmp_path / "reports").exists(), "nothing is half-written"
        return err.removeprefix("error: ")

    return run


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run", "--help"], ["doctor", "-h"], ["--version"], ["list"]])
def test_nothing_heavy_is_loaded(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom harness.cli import main\n"
        f"try:\n    main({arguments!r})\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        f"found = [name for name in {HEAVY!r} if name in sys.modules]\nassert not found, found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_help_names_every_command() -> None:
    text = harness("--help").stdout
    for name in cli.COMMANDS:
        assert f"\n  {name} " in text


def test_the_help_of_run_names_every_lock_strategy() -> None:
    words = harness("run", "--help").stdout.replace(",", " ").split()
    assert not set(NAMES) - set(words)


def test_bare_harness_shows_help() -> None:
    assert harness().stdout == harness("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], ["rnu", "run"]),
        (["run", "--jbs", "2"], ["--jbs", "--jobs", "harness run --help"]),
        (["run", "--jobs", "0"], ["--jobs"]),
        (["run", "--jobs", "many"], ["--jobs"]),
        (["run", "--repeats", "0"], ["--repeats"]),
        (["run", "--timeout", "-1"], ["--timeout"]),
        (["run", "one", "two"], ["two"]),
        (["run", "nowhere.toml"], ["nowhere.toml", "quick"]),
        (["run", "quikc"], ["quikc", 'did you mean "quick"?']),
        (["run", "."], ["folder"]),
        (["run", "--only", "lock=every_step"], ["'lock=every_step'", "lock: none", "checkpoint: none"]),
        (["run", "--only", "lok=none"], ["--only", "lok", "lock"]),
        (["run", "--only", "lock=none and"], ["--only", "lock=none and"]),
        (["run", "--python", "no-such-python"], ["--python no-such-python"]),
        (["run", "--python", "/bin/ls"], ["--python /bin/ls"]),
        (["run", "--executor", "lcoal"], ["lcoal", "local"]),
        (["run", "--only", "lock=evry"], ['no lock strategy is called "evry"; nearest: every_step', "harness run --help"]),
        (["reprodce"], ["No such command 'reprodce' (did you mean 'reproduce'?); see harness --help"]),
        (["reproduce", "x", "--in", "pipelin"], ["'--in': 'pipelin' is not one of"]),
        (["report", "--markdown"], ["requires an argument; see harness report --help"]),
        (["run", "--resume"], ["reports/latest", "--out"]),
        (["run", "--resume", "--out", "typo"], ["typo is no run folder", "nothing to resume", "--out"]),
        (["run", "--resume", "--out", "."], [". holds no run to resume", "leave out --resume"]),
        (["list", "--only", "nothing"], ["--only"]),
        (["doctor", "--python", "no-such-python"], ["--python no-such-python"]),
        (["run", ""], ["MATRIX", "it is empty; see harness run --help"]),
        (["list", ""], ["MATRIX", "it is empty; see harness list --help"]),
        (["run", "--out", ""], ["'--out': it is empty; see harness run --help"]),
        (["run", "--out="], ["'--out': it is empty"]),
        (["report", "--csv", ""], ["'--csv': it is empty"]),
        (["bisect", "locks", ""], ["it is empty; see harness bisect --help"]),
        (["run", "--timeout", "inf"], ["--timeout inf: a time must be finite"]),
        (["run", "--timeout", "nan"], ["'--timeout'"]),
        (["bisect", "locks", "lock=none", "--max-minutes", "nan"], ["--max-minutes nan: a time must be finite"]),
        (["reproduce", "fx-flag-collision", "--timeout", "inf"], ["--timeout inf: a time must be finite"]),
        (["list", LONG], ['no matrix file "xxx', "quick"]),
        (["run", LONG], ['no matrix file "xxx', "quick"]),
        (["run", "--out", LONG], ["cannot write to run folder xxx", "File name too long", "--out"]),
        (["report", LONG], ["xxx", "File name too long"]),
        (["trace", LONG], ["xxx… (400 characters): no such file, for the name is too long"]),
        (["explain", LONG], ["xxx", "too long"]),
        (["compare", LONG, LONG], ["xxx", "File name too long"]),
        (["bisect", "locks", LONG], ['no matrix file "xxx']),
        (["bisect", "locks", f"lock=none,nothing={LONG}"], ["nothing"]),
        (["upstream", LONG], ["xxx", "too long"]),
    ],
)
def test_bad_input_is_one_clear_line(fails: Callable[..., str], arguments: list[str], words: list[str]) -> None:
    said = fails(*arguments)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema = 1\n[axes]\nlok = ['none']\n", ["bad.toml", "lok", "lock"]),
        ("schema = 1\n[axes]\nlock = ['noen']\n", ["bad.toml", "noen", "none"]),
        ("schema = 1\n[axes\n", ["bad.toml"]),
        ("schema = 1\n", ["bad.toml"]),
        ("schema = 9\n[axes]\nlock = ['none']\n", ["bad.toml", "schema"]),
        ("", ["bad.toml", "schema"]),
    ],
)
def test_a_bad_matrix_is_named(fails: Callable[..., str], tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "bad.toml").write_text(text)
    for command in ("run", "list"):
        said = fails(command, "bad.toml")
        for word in words:
            assert word in said


@pytest.mark.parametrize("key", ["data", "target_model", "drafter_model", "tokenizer"])
def test_a_path_of_the_pipeline_that_is_not_there_is_named(fails: Callable[..., str], tmp_path: Path, key: str) -> None:
    (tmp_path / "chats.jsonl").write_text("{}")
    (tmp_path / "m.toml").write_text(f'schema = 1\n[axes]\nlock = ["none"]\n[pipeline]\n{key} = "chat.jsonl"\n')
    for command in ("run", "list"):
        said = fails(command, "m.toml")
        kind = "file or folder" if key == "data" else "folder"
        assert f'm.toml: [pipeline] key "{key}": no {kind} "chat.jsonl" (did you mean "chats.jsonl"?)' in said
        assert f"looked up from {tmp_path}" in said


def test_paths_that_are_there_and_other_workloads_pass(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text("{}")
    lines = 'data = "chats.jsonl"\ntarget_model = "."\ntokenizer = "bytes"\n'
    (tmp_path / "m.toml").write_text(f'schema = 1\n[axes]\nlock = ["none"]\n[pipeline]\n{lines}')
    assert harness("list", "m.toml", cwd=tmp_path).returncode == 0
    own = 'schema = 1\n[axes]\nworkload = ["my:Own"]\n[pipeline]\ndata = "elsewhere"\n'
    (tmp_path / "m.toml").write_text(own)
    assert harness("list", "m.toml", cwd=tmp_path).returncode == 0


def test_no_name_of_a_matrix_is_not_the_default_one() -> None:
    with pytest.raises(MatrixError, match=r"is empty; give a file, or one of: .*quick"):
        find_matrix("")


def test_a_program_that_is_watched_may_be_given_an_empty_argument(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        cli.main(["watch", "no-such-program", ""])
    assert "it is empty" not in capsys.readouterr().err


def test_an_unwritable_folder_is_named(fails: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write to run folder" in fails("run", "--out", "file/run")


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str | None) -> Path:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("harness.control.matrices.find_matrix", broken)
    with pytest.raises(ZeroDivisionError, match="ours"):
        cli.main(["list"])


def test_a_reader_that_stops_reading_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0


def test_list_prints_ids_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MATRIX)
    done = harness("list", "m.toml", "--only", "lock=none", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "default\ncheckpoint=reentrant\n", "")


def test_list_json_holds_every_axis(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MATRIX)
    document = json.loads(harness("list", "m.toml", "--json", cwd=tmp_path).stdout)
    assert document["repeats"] == 2
    assert document["axes_varying"] == ["lock", "checkpoint"]
    assert [scenario["id"] for scenario in document["scenarios"]][:2] == ["default", "checkpoint=reentrant"]
    assert document["scenarios"][1]["scenario"]["checkpoint"] == "reentrant"
    assert len(document["scenarios"][0]["scenario"]) == 21


def test_a_matrix_of_ones_own_goes_before_ours(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "quick.toml").write_text(MATRIX)
    for arguments in ([], ["quick"], ["quick.toml"]):
        assert harness("list", *arguments, cwd=tmp_path).stdout.splitlines()[0] == "default"
    assert len(harness("list", cwd=tmp_path).stdout.splitlines()) == 4


def test_the_default_matrix_is_found_from_anywhere(tmp_path: Path) -> None:
    assert harness("list", cwd=tmp_path).stdout == harness("list", "quick").stdout != ""


def test_the_version() -> None:
    import harness as package

    assert harness("--version").stdout == f"dflash-harness {package.__version__}\n"
