"""`harness watch`: the program is what it would be without, and what it did is put down."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from watch_support import LIMIT_S, PROGRAMS, ROOT, environment, plainly, watch, watching

from harness.hazards import find

PLAIN, HOOKS, FORKS = (str(PROGRAMS / f"{name}.py") for name in ("plain", "hooks", "forks"))
SUDDEN, ASYNCS = (str(PROGRAMS / f"{name}.py") for name in ("sudden", "asyncs"))


def test_a_program_finds_everything_as_it_would_be_without(tmp_path: Path) -> None:
    custom = tmp_path / "custom"
    custom.mkdir()
    (custom / "sitecustomize.py").write_text("import sys\nsys.custom_of_the_program = 'ran'\n")
    path = f"{ROOT}{os.pathsep}{custom}"
    done = watch(
        tmp_path / "run", sys.executable, PLAIN, "7", "--read", "x y", stdin="from outside\n", more={"PYTHONPATH": path}
    )
    first, rest = done.out.splitlines()
    assert done.code == 7, done.err
    assert rest == "from outside"
    assert json.loads(first) == {
        "argv": [PLAIN, "7", "--read", "x y"],
        "name": "__main__",
        "path": path,
        "variable": None,
        "first": str(PROGRAMS),
        "cwd": str(tmp_path),
        "threads": 1,
        "hooks": True,
        "tty": [False, False, False],
        "custom": "ran",
    }
    assert done.row["outcome"] == "ok"
    assert done.row["exit"] == {"status": 7, "signal": None, "how": "exited"}
    assert done.row["facts"]["torch_imported"] is False
    assert "torch was never imported" in " ".join(done.err.split())  # lines are folded
    assert "torch was never imported" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert not (tmp_path / "run" / "trials" / done.row["trial"] / "events.bin").exists()


@pytest.mark.parametrize("how", ["module", "console script", "shebang", "shell"])
def test_however_python_is_started(tmp_path: Path, how: str) -> None:
    script = tmp_path / "tool"
    script.write_text(f"#!{sys.executable}\n" + Path(PLAIN).read_text())
    script.chmod(0o755)
    (tmp_path / "plainmod.py").write_text(Path(PLAIN).read_text())
    (tmp_path / "test_one.py").write_text("def test_one():\n    import threading\n    assert threading.active_count() == 1\n")
    words = {
        "module": ("-m", "plainmod", "3"),
        "console script": (str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:cacheprovider", "test_one.py"),
        "shebang": ("./tool", "3"),
        "shell": ("sh", "-c", f"{sys.executable} {PLAIN} 0; exit 3"),
    }[how]
    done = watch(tmp_path / "run", *words)
    assert done.code == (0 if how == "console script" else 3), done.err
    assert len(done.rows) == 1


def test_hooks_handlers_and_exits_of_the_programs_own_are_called_as_ever(tmp_path: Path) -> None:
    plain = plainly(sys.executable, HOOKS, cwd=tmp_path)
    done = watch(tmp_path / "run", sys.executable, HOOKS)
    assert (done.code, done.out) == (plain.returncode, plain.stdout)
    assert "thread hook ValueError" in done.out  # the program does what its name says
    assert [(error["type"], error["worker"]) for error in done.row["errors"]] == [
        ("ValueError", "failing"),
        ("KeyError", "MainThread"),
    ]
    assert 'raise KeyError("in main")' in done.row["errors"][1]["traceback"]


def test_children_are_left_alone(tmp_path: Path) -> None:
    plain = plainly(sys.executable, FORKS, cwd=tmp_path)
    done = watch(tmp_path / "run", sys.executable, FORKS)
    assert (done.code, done.out) == (plain.returncode, plain.stdout)
    assert done.row["facts"]["children_unseen"] == 2
    assert "--follow" in done.err


def test_children_are_followed(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, FORKS, options=("--follow",))
    assert done.out.replace("True", "False") == plainly(sys.executable, FORKS, cwd=tmp_path).stdout
    ends = sorted((row["exit"]["how"], row["outcome"]) for row in done.rows)
    # The program, a fork that calls _exit, a process of multiprocessing by fork and one by spawn, and a subprocess.
    assert len(ends) == 5
    assert {outcome for _, outcome in ends} == {"ok"}
    assert [how for how, _ in ends].count("os._exit") == 2


@pytest.mark.parametrize(("follow", "rows"), [("--no-follow", 1), ("--follow", 18)])
def test_threads_may_fork_at_a_time(tmp_path: Path, follow: str, rows: int) -> None:
    script = str(PROGRAMS / "fork_storm.py")
    done = watch(tmp_path / "run", sys.executable, "-W", "error", script, options=(follow,))
    assert done.out == "0 15 at once\n", done.err
    assert len(done.rows) == rows  # followed: itself, the fork server and its child, and the fifteen
    assert "Traceback" not in done.err


@pytest.mark.parametrize("how", ["alone", "beside"])
def test_python_warns_of_forks_beside_a_thread_as_it_would_without(tmp_path: Path, how: str) -> None:
    """From 3.12 on it does, where the program has a thread of its own; the watch's does not count."""
    script = str(PROGRAMS / "fork_often.py")
    plain = plainly(sys.executable, script, how, cwd=tmp_path)
    done = watch(tmp_path / "run", sys.executable, script, how, options=("--quiet",))
    without_pids = [re.sub(r"pid=\d+", "pid=N", text) for text in (plain.stderr, done.err)]
    assert without_pids[1] == without_pids[0]
    warned = 10 if how == "beside" and sys.version_info >= (3, 12) else 0
    assert without_pids[0].count("is multi-threaded, use of fork() may lead to deadlocks") == warned


@pytest.mark.parametrize(("how", "code", "outcome"), [("on and on", 0, "ok"), ("stuck", 137, "deadlock")])
def test_the_watchdog_goes_on_after_forks(tmp_path: Path, how: str, code: int, outcome: str) -> None:
    """It ends before the fork of a program with one thread; forks that come faster than its looks do not hold it up."""
    script = str(PROGRAMS / "fork_often.py")
    options = ("--hang-timeout", "2", "--on-hang", "kill")
    done = watch(tmp_path / "run", sys.executable, script, how, options=options)
    assert (done.code, done.row["outcome"]) == (code, outcome), done.err
    assert done.row["facts"]["stuck"] == [] or how == "stuck"


def test_what_a_future_keeps_is_seen(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, ASYNCS)
    assert done.code == 0
    assert done.row["outcome"] == "cuda_fault"
    assert done.row["errors"][0]["worker"].startswith("pool_")


@pytest.mark.parametrize(
    ("how", "code", "outcome"),
    [("_exit", 9, "ok"), ("exec", 4, "ok"), ("segv", -signal.SIGSEGV, "crash"), ("kill", -signal.SIGKILL, "interrupted")],
)
def test_a_sudden_end_is_passed_on_and_leaves_its_row(tmp_path: Path, how: str, code: int, outcome: str) -> None:
    done = watch(tmp_path / "run", sys.executable, SUDDEN, how)
    assert done.code == code, done.err
    assert done.rows[0]["outcome"] == outcome
    stacks = tmp_path / "run" / "trials" / done.rows[0]["trial"] / "stacks.txt"
    assert ("sudden.py" in stacks.read_text()) == (how == "segv")


def test_a_signal_to_the_watch_reaches_the_program(tmp_path: Path) -> None:
    process = subprocess.Popen(
        watching(tmp_path / "run", sys.executable, SUDDEN, "wait"), stdout=subprocess.PIPE, env=environment(), cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == -signal.SIGTERM
    process.stdout.close()
    row = json.loads((tmp_path / "run" / "results.jsonl").read_text())
    assert row["exit"]["signal"] == "SIGTERM"


def test_a_terminal_is_the_programs_and_its_ctrl_c_comes_once(tmp_path: Path) -> None:
    script = tmp_path / "counts.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "came = []\n"
        "signal.signal(signal.SIGINT, lambda *_: came.append(os.write(1, b'<one>')))\n"
        "print('tty', [os.isatty(fd) for fd in (0, 1, 2)], flush=True)\n"
        "while not came:\n"  # one that comes just before a read would be handled after it
        "    time.sleep(0.01)\n"
        "print('line', sys.stdin.readline().strip(), flush=True)\n"
    )
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        words = watching(tmp_path / "run", sys.executable, str(script), options=("--live",))
        os.execve(words[0], words, environment(TERM="xterm"))
    termios.tcsetwinsize(fd, (40, 100))
    seen = _until(fd, b"tty [True, True, True]")
    os.write(fd, b"\x03")
    seen += _until(fd, b"<one>")
    os.write(fd, b"hello\n")
    seen += _until(fd, b"Report:")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(fd)
    assert seen.count(b"<one>") == 1
    assert b"line hello" in seen


def _until(fd: int, mark: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + LIMIT_S
    while mark not in seen:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, seen
        seen += os.read(fd, 4096)
    return seen


def test_quiet_says_nothing_where_nothing_was_found(tmp_path: Path) -> None:
    assert watch(tmp_path / "run", sys.executable, PLAIN, options=("--quiet",)).err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no command to watch"),
        (("no-such-command",), "no-such-command: no such command"),
        ((sys.executable, "-I", PLAIN), "-I (isolated mode) ignores PYTHONPATH"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_left(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = watch(tmp_path / "run", *words)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert said in done.err
    assert not (tmp_path / "run").exists()


def test_a_command_that_is_no_python_runs_and_says_so(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", "sh", "-c", "exit 5")
    assert done.code == 5
    said = " ".join(done.err.split())
    assert said.startswith("harness watch: nothing was watched. Note: no Python process took the watch: ")
    assert "ignores PYTHONPATH. Report: " in said


def test_what_threads_did_to_each_other_in_torch(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, str(PROGRAMS / "torch_threads.py"))
    assert done.code == 0, done.err
    said = json.loads(done.out.splitlines()[-1])
    minor = tuple(int(part) for part in said["torch"].split(".")[:2])
    row = done.row
    assert {probe: state for probe, state in row["probes"].items() if state != "ok"} == {}
    if minor < (2, 14):
        assert said["refused"]
        (error,) = [error for error in row["errors"] if error["label"] == "fx_error"]
        assert (error["worker"], error["region"], error["thread"]) == ("trainer", "forward", "MainThread")
        (tracer,) = error["tracers"]
        assert tracer["thread"] == "tracer"
        assert "in traced" in tracer["stack"]
    assert "dense" in row["outcomes"]
    assert row["workers"]["MainThread"]["dense_calls"] == 1
    reasons = [one["reason"] for one in row["facts"]["recompiles"] if one["function"].startswith("double ")]
    assert any("expected 2, actual 3" in reason for reason in reasons)
    assert row["workers"]["worker"]["compiles"] == 1
    if minor >= (2, 12):
        assert row["facts"]["settings"] == {"worker": {"recompile_limit": {"here": 64, "there": 8}}}
    (leak,) = [problem["text"] for problem in row["problems"] if problem["label"] == "state_leak"]
    assert leak.startswith("the state of torch's random generator changed while MainThread compiled")
    sums = row["workers"]["MainThread"]["facts"]["sums"]
    assert sums["steps"] == 5
    assert sums["engine_runs"] == 6
    assert sums["regions"]["step"][0] == 5
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "expected 2, actual 3" in page
    assert "ran dense" in page


def test_an_error_is_named_with_its_hazard_and_remedy(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, str(PROGRAMS / "annotated.py"))
    row = done.row
    minor = tuple(int(part) for part in row["torch"].split(".")[:2])
    if minor < (2, 13):
        pytest.skip("create_block_mask annotates from torch 2.13 on")
    lines = [line.strip() for line in done.err[done.err.index("harness watch: ") :].splitlines()]
    assert lines[1] == "graph_corrupt in trainer-0 1, trainer-1 1: KeyError: 'custom'."
    said = " ".join(lines[2:])
    assert said.startswith("this is annotate-collision: ")
    assert f"remedy: {find('annotate-collision').remedy}" in said
    assert "This is annotate-collision: " in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_a_program_that_replaces_parts_of_torch_for_good(tmp_path: Path) -> None:
    """What it put over the watch's own wrappers stays, is called as ever, and hides nothing from the watch."""
    program = str(PROGRAMS / "patches_torch.py")
    done = watch(tmp_path / "run", sys.executable, program)
    counts = [("__call__", 3), ("_engine_run_backward", 3), ("backward", 3), ("compile", 3), ("trace", 2)]
    assert (done.code, done.out) == (0, f"{counts} True\n"), done.err  # as it is without a watch
    row = done.row
    assert {probe: state for probe, state in row["probes"].items() if state != "ok"} == {}
    counted = {name: (one["compiles"], one["facts"]["sums"]["engine_runs"]) for name, one in row["workers"].items()}
    assert counted == {"MainThread": (3, 3), "other": (1, 1)}
    assert row["outcomes"] == ["ok"]


def test_torchrun_and_its_ranks(tmp_path: Path) -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    words = [str(torchrun)] if torchrun.exists() else [sys.executable, "-m", "torch.distributed.run"]
    words += ["--standalone", "--nproc-per-node", "2", str(PROGRAMS / "ranks.py")]
    done = watch(tmp_path / "run", *words)
    if done.code:
        plain = plainly(*words, cwd=tmp_path)
        assert plain.returncode, done.err  # it runs here, but for the watch
        pytest.skip(f"torchrun cannot run here: {plain.stderr.strip().splitlines()[-1:]}")
    assert sorted(done.out.splitlines()) == ["rank 0 of 2: 3", "rank 1 of 2: 3"]
    said = [json.loads((tmp_path / "run" / "trials" / row["trial"] / "process.json").read_text()) for row in done.rows]
    assert sorted(one["rank"] for one in said) == ["", "0", "1"]  # the launcher, and both without --follow
    for one, row in zip(said, done.rows, strict=True):
        assert row["outcome"] == "ok", row["reason"]
        assert row["compiles"] == (1 if one["rank"] else 0)
        assert {probe: state for probe, state in row["probes"].items() if state != "ok"} == {}


def test_a_pipe_that_nobody_reads_ends_a_program_as_in_a_shell(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", "sh", "-c", "trap '' CHLD; yes | head -1; kill -PIPE $$")
    assert done.out == "y\n"
    assert done.code == -signal.SIGPIPE
