"""`harness watch`: however the program and its surroundings end, the exit code is the program's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from watch_support import LIMIT_S, environment, plainly, watch, watching

FILLS = """
import sys
import harness

with open("full/filler", "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
for number in range(20_000):
    with harness.region(f"r{number % 7}"):
        pass
sys.exit(7)
"""


def test_a_full_disk_costs_the_account_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "fills.py").write_text(FILLS)
    room = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=3m none full && exec "$@"', "sh"]
    try:
        able = subprocess.run([*room, "true"], cwd=tmp_path, capture_output=True, check=False, timeout=LIMIT_S)
    except FileNotFoundError:
        pytest.skip("no unshare(1)")
    if able.returncode:
        pytest.skip(f"no small file system can be mounted here: {able.stderr.decode().strip()}")
    words = [*room, *watching(tmp_path / "full" / "run", sys.executable, "fills.py")]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=environment()
    )
    assert done.returncode == 7, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("streams", ["2>&-", ">&-", ">&- 2>&- <&-", "2>/dev/full", "2>&1 >/dev/null | true"])
def test_the_exit_code_is_the_programs_whatever_the_streams_are(tmp_path: Path, streams: str) -> None:
    line = " ".join(watching(tmp_path / "run", sys.executable, "-c", "'raise SystemExit(7)'"))
    shell = f"({line}; echo $? >code) {streams}"
    subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, check=False, timeout=LIMIT_S, env=environment())
    assert (tmp_path / "code").read_text() == "7\n"
    assert (tmp_path / "run" / "results.jsonl").read_text().count("\n") == 1


def test_an_exit_by_ctrl_c_after_an_error_stays_one(tmp_path: Path) -> None:
    program = "from threading import Thread\nt = Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\nraise KeyboardInterrupt"
    assert plainly(sys.executable, "-c", program, cwd=tmp_path).returncode == -signal.SIGINT
    done = watch(tmp_path / "run", sys.executable, "-c", program)
    assert done.code == -signal.SIGINT
    assert [error["type"] for error in done.row["errors"]] == ["ZeroDivisionError"]


def test_an_error_that_the_program_only_noted_did_not_end_it(tmp_path: Path) -> None:
    """As pytest does at an expected failure."""
    (tmp_path / "noting.py").write_text(
        "import sys\n"
        "def work():\n"
        "    try:\n"
        "        1 / 0\n"
        "    except ZeroDivisionError as error:\n"
        "        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__\n"
        "work()\n"
    )
    done = watch(tmp_path / "run", sys.executable, "noting.py")
    assert (done.code, done.row["outcome"], done.row["errors"]) == (0, "ok", [])


@pytest.mark.parametrize("fault", ["import no_such_module", "1 / 0"])
def test_the_traceback_of_a_failed_import_is_the_programs(tmp_path: Path, fault: str) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(fault)
    (tmp_path / "program.py").write_text("import torch\n")
    plain = plainly(sys.executable, "program.py", cwd=tmp_path)
    done = watch(tmp_path / "run", sys.executable, "program.py")
    assert done.err.startswith(plain.stderr)
    assert done.code == plain.returncode == 1


def test_a_module_of_the_programs_with_a_standard_name_is_imported_as_ever(tmp_path: Path) -> None:
    app = tmp_path / "app"  # not where `python -m harness` itself would find them
    (app / "json").mkdir(parents=True)
    (app / "platform.py").write_text("whose = 'its own'\n")
    (app / "json" / "__init__.py").write_text("whose = 'its own'\n")
    (app / "program.py").write_text(
        "import sys, threading, json, platform\n"
        "print(platform.whose, json.whose, sorted(name for name in sys.modules if name.startswith('json')))\n"
        "thread = threading.Thread(target=lambda: 1 / 0, name='failing')\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    plain = plainly(sys.executable, "app/program.py", cwd=tmp_path)
    assert plain.stdout == "its own its own ['json']\n"
    done = watch(tmp_path / "run", sys.executable, "app/program.py")
    assert done.out == plain.stdout, done.err
    assert [error["worker"] for error in done.row["errors"]] == ["failing"]


def test_a_process_that_is_about_to_run_another_program_has_no_row(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, subprocess, sys\n"
        "subprocess.run(['true'], preexec_fn=os.getpid, check=True)\n"
        "subprocess.run([sys.executable, '-c', 'pass'], preexec_fn=os.getpid, check=True)\n"
    )
    done = watch(tmp_path / "run", sys.executable, "program.py", options=("--follow",))
    assert [(row["outcome"], row["exit"]["how"]) for row in done.rows] == [("ok", "exited")] * 2


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_that_its_parent_ends_was_not_interrupted(tmp_path: Path, start: str) -> None:
    (tmp_path / "program.py").write_text(
        "import multiprocessing, time\n"
        "def work(begun):\n"
        "    begun.set()\n"
        "    time.sleep(100)\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({start!r})\n"
        "    begun = context.Event()\n"
        "    child = context.Process(target=work, args=(begun,))\n"
        "    child.start()\n"
        "    assert begun.wait(60)\n"
        "    child.terminate()\n"
        "    child.join()\n"
    )
    done = watch(tmp_path / "run", sys.executable, "program.py", options=("--follow",))
    assert done.code == 0, done.err
    assert [(row["outcome"], row["exit"]["signal"]) for row in done.rows] == [("ok", None), ("ok", "SIGTERM")]


def test_a_watch_is_begun_when_the_program_begins(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, "-c", "import time; time.sleep(1.2)")
    created = json.loads((done.run / "environment.json").read_text())["created"]
    began = json.loads((done.run / "trials" / done.row["trial"] / "process.json").read_text())["began"]
    assert datetime.fromisoformat(created).timestamp() <= began


def test_a_folder_of_the_users_keeps_what_is_in_it_when_nothing_can_start(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "notes").mkdir(parents=True)
    (mine / "thesis.txt").write_text("precious")
    (tmp_path / "run.sh").write_text("echo hi\n")
    (tmp_path / "run.sh").chmod(0o755)
    for out in (mine, tmp_path / "fresh"):
        done = watch(out, "./run.sh", cwd=tmp_path)
        assert done.code == 2, done.err
        assert done.err.startswith("error: ")
    assert sorted(entry.name for entry in mine.iterdir()) == ["notes", "thesis.txt"]
    assert not (tmp_path / "fresh").exists()


@pytest.mark.parametrize("name", ["tab\t.py", "line\nbreak.py", " .py", os.fsdecode(b"latin\xe9.py")])
def test_a_name_that_is_no_text_costs_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("raise SystemExit(5)\n")
    done = watch(tmp_path / "run", sys.executable, name, os.fsdecode(b"\xff\xfe"))
    assert done.code == 5, done.err
    assert "Traceback" not in done.err
    assert len(done.rows) == 1
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["kind"] == "watch"


def test_what_ends_a_process_can_still_be_pickled(tmp_path: Path) -> None:
    each = "assert all(pickle.loads(pickle.dumps(f)) is f for f in (os._exit, os.execv, os.execve))"
    text = f"import os, pickle; {each}; os._exit(6)"
    done = watch(tmp_path / "run", sys.executable, "-c", text)
    assert done.code == 6, done.err


def test_a_suite_whose_warnings_are_errors_passes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    words = ("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_it.py")
    done = watch(tmp_path / "run", sys.executable, *words)
    assert done.code == 0, done.out


@pytest.mark.parametrize("number", [signal.SIGXCPU, signal.SIGUSR1, signal.SIGALRM], ids=lambda number: number.name)
def test_an_end_by_any_signal_is_told(tmp_path: Path, number: signal.Signals) -> None:
    done = watch(tmp_path / "run", sys.executable, "-c", f"import signal; signal.raise_signal({number})")
    assert done.code == -number
    assert (done.row["outcome"], done.row["reason"]) == ("interrupted", f"the process ended by {number.name}")
    assert f"interrupted: the process ended by {number.name}." in done.err


RAISES = """
import os, signal, threading

def work():
    raise NotImplementedError("no such thing here")

thread = threading.Thread(target=work, name="trainer-0")
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_an_error_that_ended_a_thread_is_told_though_the_process_crashed_at_once(tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text(RAISES)
    done = watch(tmp_path / "run", sys.executable, "raises.py")
    assert done.code == -signal.SIGSEGV
    assert done.row["outcomes"] == ["error", "crash"]
    assert [(error["type"], error["worker"], error["seen"]) for error in done.row["errors"]] == [
        ("NotImplementedError", "trainer-0", "thread")
    ]
    told = "trainer-0 ended by NotImplementedError: no such thing here (raises.py:5); then the process ended by SIGSEGV."
    said = done.err[done.err.index("harness watch: ") :]
    assert f" {told} Report: " in " ".join(said.split())
    assert said.rstrip().endswith(f"Next: harness explain {done.run}/trials/{done.row['trial']}")
    assert f"<h1>{told}</h1>" in (done.run / "report.html").read_text("utf-8")


def test_a_script_that_is_not_there_is_one_line_and_nothing_starts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    done = watch(tmp_path / "run", sys.executable, "-u", "trian.py")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        'error: trian.py: no such file (did you mean "train.py"?); give its path from the working folder'
    ]
    assert not (tmp_path / "run").exists()


def test_latest_stays_where_nothing_was_to_be_seen(tmp_path: Path) -> None:
    (tmp_path / "reports" / "before").mkdir(parents=True)
    latest = tmp_path / "reports" / "latest"
    latest.symlink_to("before")
    done = watch(tmp_path / "reports" / "code", sys.executable, "-c", "raise SystemExit(3)", cwd=tmp_path)
    assert "-c ended with exit code 3; nothing of what is watched for was seen" in " ".join(done.err.split())
    watch(tmp_path / "reports" / "none", "sh", "-c", "exit 3", cwd=tmp_path)
    assert latest.readlink() == Path("before")
    watch(tmp_path / "reports" / "raises", sys.executable, "-c", "1 / 0", cwd=tmp_path)
    assert latest.readlink() == Path("raises")
