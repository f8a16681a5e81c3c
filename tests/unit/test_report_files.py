"""Where a command writes to: links stay links, and what is no regular file is written to, not replaced."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_events import collision, write_events
from fake_folder import write_folder
from fake_runs import FX_ERROR, row

from harness import cli
from harness.core.errors import RunFolderError
from harness.core.scenario import Scenario
from harness.report.files import write_whole

WAIT_S = 20.0
MATRIX = 'schema = 1\n[axes]\nlock = ["none"]\n'


def read_aside(path: Path) -> Callable[[], bytes]:
    """Reads a FIFO to its end in a thread; what it gives waits for that."""
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()

    def result() -> bytes:
        reader.join(WAIT_S)
        assert not reader.is_alive(), "nobody wrote to it"
        return found[0]

    return result


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(Path("real") / "file")
    assert write_whole("new", link) == link
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert os.listdir(tmp_path / "real") == ["file"]


def test_a_link_to_nothing_makes_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("later")
    write_whole(b"new", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "later").read_bytes() == b"new"


def test_a_link_in_a_circle_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(RunFolderError, match=r"cannot write .*/a: .*; choose another file with --csv"):
        write_whole("new", tmp_path / "a", "--csv")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("by_link", [False, True])
def test_a_fifo_is_written_to(tmp_path: Path, by_link: bool) -> None:
    fifo = path = tmp_path / "fifo"
    os.mkfifo(fifo)
    if by_link:
        path = tmp_path / "link"
        path.symlink_to("fifo")
    told = read_aside(fifo)
    write_whole("ü" * 100_000, path)
    assert told() == ("ü" * 100_000).encode()
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert path.is_symlink() == by_link


def test_the_end_of_a_pipe_by_its_number_is_written_to(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        write_whole("told", Path(f"/proc/self/fd/{write}"))
        assert os.read(read, 100) == b"told"
    finally:
        os.close(read)
        os.close(write)


def test_a_regular_file_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fails(self: Path, data: bytes) -> int:
        with open(self, "wb") as stream:
            stream.write(data[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(RunFolderError, match="No space left"):
        write_whole("new", path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_longest_name_that_a_file_can_have(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_whole("new", path)
    assert path.read_text() == "new"
    with pytest.raises(RunFolderError, match="File name too long; choose another file with --out"):
        write_whole("new", tmp_path / ("x" * 256))


@pytest.fixture
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed: dict[str, Any] = row(Scenario(), 0, "fx_error", errors=[FX_ERROR])
    write_folder(tmp_path / "run", [failed], matrix=MATRIX)


def harness(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    assert isinstance(ended.value.code, int)
    return (ended.value.code, *capsys.readouterr())


@pytest.mark.usefixtures("_run")
@pytest.mark.parametrize("option", ["--out", "--csv", "--markdown", "--badge"])
@pytest.mark.parametrize(
    "name",
    ["results.jsonl", "matrix.toml", "environment.json", "bisect.json", "plans.jsonl", "trials/default--r0/result.json",
     "trials/default--r0/new.csv", "trials/new.csv", "plans/a/trials/b/result.json", "references/x/result.json"],
)  # fmt: skip
def test_no_output_is_written_over_what_a_run_recorded(
    capsys: pytest.CaptureFixture[str], name: str, option: str
) -> None:
    path = Path("run") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".csv" and not path.exists():
        path.write_text("evidence")
    Path("latest").symlink_to("run")
    Path("link").symlink_to(path)
    before = path.read_bytes() if path.exists() else None
    for named in (str(path), f"latest/{name}", str(path.absolute()), "link"):
        code, out, err = harness(capsys, "report", "run", option, named)
        real = Path("run").resolve()
        assert (code, out) == (2, "")
        assert err == f"error: {named} is of the record of the run in {real}; choose another file with {option}\n"
        assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.usefixtures("_run")
def test_other_commands_spare_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    trial = Path("run/trials/default--r0")
    trial.mkdir(parents=True)
    write_events(Path("run"), "default--r0", collision())
    before = Path("run/results.jsonl").read_bytes()
    for command in (
        ["compare", "run", "run", "--html", "run/results.jsonl"],
        ["trace", str(trial), "--out", "run/results.jsonl"],
        ["report", "run", "--trial", "default--r0", "--out", "run/results.jsonl"],
    ):
        code, out, err = harness(capsys, *command)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "run/results.jsonl is of the record of the run in" in err
    assert Path("run/results.jsonl").read_bytes() == before


@pytest.mark.usefixtures("_run")
def test_what_is_made_of_a_run_may_lie_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    trial = Path("run/trials/default--r0")
    trial.mkdir(parents=True)
    write_events(Path("run"), "default--r0", collision())
    for command, made in (
        (["report", "run", "--out", "run/report.html"], "run/report.html"),
        (["report", "run", "--csv", "run/trials.csv"], "run/trials.csv"),
        (["report", "run", "--trial", "default--r0"], f"{trial}/report.html"),
        (["report", "run", "--trial", "default--r0", "--out", f"{trial}/report.html"], f"{trial}/report.html"),
        (["trace", str(trial)], f"{trial}/trace.json"),
    ):
        code, out, _ = harness(capsys, *command)
        assert (code, out) == (0, f"{made}\n")
    Path("trials").mkdir()
    for name in ("trials/run.csv", "results.jsonl"):  # of no run
        assert harness(capsys, "report", "run", "--csv", name)[:2] == (0, f"{name}\n")


@pytest.mark.usefixtures("_run")
@pytest.mark.parametrize(
    ("option", "begins"),
    [("--out", b"<!DOCTYPE html>"), ("--csv", b"trial"), ("--markdown", b"#"), ("--badge", b"<svg")],
)
def test_every_output_of_a_report_goes_through_a_link_to_a_fifo(tmp_path: Path, option: str, begins: bytes) -> None:
    os.mkfifo("fifo")
    Path("link").symlink_to("fifo")
    told = read_aside(tmp_path / "fifo")
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "run", option, "link"])
    assert ended.value.code == 0
    assert Path("link").is_symlink()
    assert stat.S_ISFIFO(os.stat("link").st_mode)
    assert begins.lower() in told()[:400].lower()
