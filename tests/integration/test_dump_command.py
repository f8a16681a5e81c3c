"""`harness dump` on processes that are there: bad input, exit codes, a tree of ranks, what memory and record tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.cli import main
from harness.control import processes
from harness.control.dump import dump_process
from harness.control.process_memory import open_memory

PROGRAMS = Path(__file__).parent / "hang_programs"

BUSY = """
print("ready", flush=True)
x = 0
while True:
    x = (x + sum(range(50))) % 7
    y = [x] * 3
    z = len(y)
"""
LAUNCHER = """
import os, subprocess, sys
ranks = []
for i in range(3):
    env = {**os.environ, "RANK": str(i), "LOCAL_RANK": str(i)}
    ranks.append(subprocess.Popen([sys.executable, sys.argv[1]], env=env))
for rank in ranks: rank.wait()
"""
RANK = """
import os, threading
ready = threading.Event()

def all_reduce():
    ready.wait()

def read_batch():
    ready.wait()

def train():
    if os.environ["RANK"] == "1":
        read_batch()
    else:
        all_reduce()

os.write(1, b"ready\\n")  # at once, whatever the other ranks write
train()
"""
OBJECTS = """
import threading
class Held:
    def __init__(self):
        self.number, self.word, self.locks = 7, "seven", [threading.Lock(), threading.RLock()]
def wait(held):
    with held.locks[1]:
        print("ready", flush=True)
        threading.Event().wait()
wait(Held())
"""
EVENTS = """
import sys, threading
from pathlib import Path
from harness.subject.eventlog import EventLog
from harness.subject.identity import Threads
log = EventLog(Path(sys.argv[1]), Threads())

def recompute():
    log.emit("strategy_lock.wait", ',"lock":"step"')
    print("ready", flush=True)
    inner.acquire()

def drafter():
    inner.acquire()
    log.emit("strategy_lock.acquired", ',"lock":"step"')
    other = threading.Thread(target=recompute, name="recompute")
    other.start()
    other.join()

inner = threading.Lock()
thread = threading.Thread(target=drafter, name="drafter-0")
thread.start()
thread.join()
"""


@contextmanager
def program(tmp_path: Path, text: str, *arguments: str, name: str = "program.py", lines: int = 1) -> Iterator[int]:
    """Runs a program that prints `ready` so many times, and ends it and what it started."""
    path = tmp_path / name
    path.write_text(text)
    process = subprocess.Popen(
        [sys.executable, str(path), *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        for _ in range(lines):
            assert process.stdout.readline().strip() == "ready"
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["dump", *arguments])
    out, err = capsys.readouterr()
    return int(str(ended.value.code)), out, err


def test_bad_pids_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    no_number = "error: PID x: not a process ID; give a number (ps -ef shows them)"
    for pid, says in ((str(gone.pid), "no process has the ID"), ("0", "is no process ID"), ("x", no_number)):
        code, out, err = run(capsys, pid)
        assert (code, out) == (2, "")
        assert says in err
        assert len(err.strip().splitlines()) == 1


def test_a_process_that_is_no_python_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        for flags in ([], ["--tree"]):
            code, _, err = run(capsys, str(process.pid), *flags)
            assert code == 2
            assert "no Python process" in err
    finally:
        process.kill()
        process.wait()


def test_the_python_below_a_wrapper_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(BUSY.replace('print("ready"', 'import os; print(os.getpid()'))
    words = ["timeout", "120", sys.executable, str(path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        child = int(process.stdout.readline())
        code, _, err = run(capsys, str(process.pid))
    finally:
        os.kill(process.pid, 15)  # it passes it on: it has a group of its own, which the child is in
        process.wait(30)
        process.stdout.close()
    assert code == 2
    (line,) = err.strip().splitlines()
    assert "it is no Python process" in line
    assert f"; {child} (" in line
    assert line.endswith(f"harness dump {child}, or harness dump --tree {process.pid}")


@pytest.mark.parametrize("flags", ["", "--tree"])
def test_a_dump_is_not_told_to_dump_itself(flags: str) -> None:
    """Of a shell, below which nothing is Python but the dump."""
    words = f'"{sys.executable}" -m harness dump $$ {flags}; exit $?'
    ended = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.strip().splitlines()
    assert "no Python process" in line
    assert "below it, is one" not in line


def test_a_process_that_has_ended_and_was_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    code, _, err = run(capsys, str(process.pid))
    process.wait()
    assert code == 2
    assert "has ended already" in err


def test_a_process_of_another_user(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.os, "geteuid", lambda: os.getuid() + 1)
    code, _, err = run(capsys, str(os.getppid()))
    assert code == 2
    assert "belongs to" in err
    assert "sudo" in err


def test_a_program_that_works_has_no_culprit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with program(tmp_path, BUSY) as pid:
        code, out, _ = run(capsys, str(pid), "--no-native")
    assert code == 1
    assert "no culprit" in out


def test_json_has_findings_waits_and_whole_stacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, str(PROGRAMS / "self_lock.py")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == "started"
        deadline = time.monotonic() + 30
        code = 1
        while code and time.monotonic() < deadline:
            code, out, _ = run(capsys, str(process.pid), "--json")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    document = json.loads(out)
    assert [finding["kind"] for finding in document["findings"]] == ["cycle"]
    teller = next(thread for thread in document["threads"] if thread["name"] == "teller")
    assert [frame["function"] for frame in teller["frames"]][:2] == ["Account.log", "Account.add"]
    assert teller["native"], "py-spy may read native frames here"
    wait = next(wait for wait in document["waits"] if wait["thread"] == "teller")
    assert wait["helpers"] == [{"thread": "teller", "how": "took it at self_lock.py:16"}]


def test_the_odd_rank_below_a_launcher_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank = tmp_path / "rank.py"
    rank.write_text(RANK)
    with program(tmp_path, LAUNCHER, str(rank), lines=3) as pid:
        deadline = time.monotonic() + 30
        odd: list[str] = []
        while odd != ["1"] and time.monotonic() < deadline:  # a rank may still be on its way
            code, out, _ = run(capsys, str(pid), "--tree", "--json", "--no-native")
            document = json.loads(out)
            odd = document["odd"]["ranks"]
        _, text, _ = run(capsys, str(pid), "--tree", "--no-native")
    assert code == 0
    assert document["odd"]["groups"] == [["0", "2"], ["1"]]
    assert [process["rank"] for process in document["processes"]] == ["", "0", "1", "2"]
    assert "rank 1 is the odd one" in text
    assert "rank 1: read_batch (rank.py:9)" in text


def test_a_process_that_keeps_events_is_known_by_them(tmp_path: Path) -> None:
    with program(tmp_path, EVENTS, str(tmp_path)) as pid:
        deadline = time.monotonic() + 30
        found = dump_process(pid, native=False, timeout_s=15.0)
        while not found.explained and time.monotonic() < deadline:
            found = dump_process(pid, native=False, timeout_s=15.0)
    assert found.record is not None
    assert found.record.folder == tmp_path
    (finding,) = found.diagnosis.findings
    assert finding.kind == "cycle"
    assert "recompute waits for the step lock, held by drafter-0" in finding.text
    assert "drafter-0 waits for recompute to end" in finding.text


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="the layout of objects is known up to Python 3.14")
def test_attributes_are_read_from_memory(tmp_path: Path) -> None:
    with program(tmp_path, OBJECTS) as pid, open_memory(pid) as memory:  # type: ignore[union-attr]
        assert memory is not None
        frames = [frame for thread in dump_process(pid, native=False, timeout_s=15).threads for frame in thread.frames]
        held = next(frame for frame in frames if frame.function == "wait").names("held")
        assert held is not None
        address = held.key
        assert isinstance(address, int)
        number, word, locks = (memory.attribute(address, name) for name in ("number", "word", "locks"))
        assert number is not None
        assert memory.number(number) == 7
        assert word is not None
        assert memory.text(word) == "seven"
        assert locks is not None
        lock, rlock = (memory.list_item(locks, index) for index in (0, 1))
        assert lock is not None
        assert memory.type_name(lock) == "lock"
        assert rlock is not None
        assert memory.owner(rlock) is not None
        assert memory.owner(lock) is None
        assert memory.attribute(address, "no_such_name") is None
        assert memory.list_item(locks, 2) is None
        assert memory.attribute(8, "number") is None, "an address that is not mapped"
