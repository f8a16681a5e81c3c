"""Hangs of watched programs: named, evidenced, and no more than reported unless asked; and no false alarm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from planted_hangs import IN_TIME_S, PLANTED, Named, Planted, watch_planted
from watch_support import HANGS, LIMIT_S, PROGRAMS, environment, watch, watching

from harness.control.evidence import pyspy
from harness.control.watch_hangs import SLACK_S

TIMEOUT_S = 1.5
KILL = ("--hang-timeout", str(TIMEOUT_S), "--on-hang", "kill")


def test_a_cycle_is_named_within_the_limit_and_the_program_is_ended(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, str(HANGS / "lock_cycle_two.py"), options=KILL)
    assert done.code == 137
    assert done.row["outcome"] == "deadlock"
    assert done.row["exit"]["how"] == "killed after a hang"
    assert "left waits for lock" in done.err
    assert "right took at lock_cycle_two.py:" in done.err
    (stuck,) = done.row["facts"]["stuck"]
    assert stuck["at_s"] < TIMEOUT_S + 5
    stacks = (tmp_path / "run" / "trials" / done.row["trial"] / "stacks.txt").read_text()
    assert "lock_cycle_two.py" in stacks
    assert "py-spy" in stacks


AT_ONCE = (
    *("queue_full", "barrier_short", "dead_owner", "import_lock", "native_read"),
    *("user_lock_inversion", "compile_lock_engine"),  # of the catalogue
)
"""The others of the planted hangs are in `tests/soak/watch_hangs.py`."""


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Named]:
    """These under a watch each, side by side: they wait, mostly."""
    base = tmp_path_factory.mktemp("planted")
    chosen = {planted.name: planted for planted in PLANTED if planted.name in AT_ONCE}
    for name in chosen:
        (base / name).mkdir()
    with ThreadPoolExecutor(len(chosen)) as pool:
        found = pool.map(lambda pair: watch_planted(pair[1], base / pair[0], 2 * TIMEOUT_S), chosen.items())
        return dict(zip(chosen, found, strict=True))


@pytest.mark.parametrize("planted", [one for one in PLANTED if one.name in AT_ONCE], ids=lambda planted: planted.name)
def test_a_planted_hang_is_named_in_time(named: dict[str, Named], planted: Planted) -> None:
    found = named[planted.name]
    assert found.after_s is not None, found.err
    assert found.after_s < 2 * TIMEOUT_S + IN_TIME_S
    assert found.row["outcomes"] == [planted.label]


CATALOGUED = {"user_lock_inversion": "user-lock-inversion", "compile_lock_engine": "compile-lock-engine-deadlock"}


@pytest.mark.skipif(pyspy() is None, reason="py-spy is not installed: the catalogue is held against native stacks")
@pytest.mark.parametrize("name", CATALOGUED)
def test_a_hazard_of_the_catalogue_is_named_with_its_remedy(named: dict[str, Named], name: str) -> None:
    """Its signature has a lock that is waited for in C, which only native stacks show."""
    found = named[name]
    stacks = (found.trial / "stacks.txt").read_text()
    if "no native frames" in stacks:
        pytest.skip("native frames may not be read here; the evidence says so")
    (hazard,) = [problem["text"] for problem in found.row["problems"] if problem["label"] == "hazard"]
    assert hazard.startswith(f"this is {CATALOGUED[name]}: ")
    assert "; remedy: " in hazard
    assert hazard in found.err


def test_a_hang_that_is_not_torch_s_is_no_hazard(named: dict[str, Named]) -> None:
    others = [found for name, found in named.items() if name not in CATALOGUED]
    assert not any(problem["label"] == "hazard" for found in others for problem in found.row["problems"])


@pytest.mark.skipif(pyspy() is None, reason="py-spy is not installed: a held interpreter lock cannot be seen into")
def test_native_code_that_holds_the_interpreter_is_seen_from_outside(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, str(HANGS / "native_gil.py"), options=KILL)
    assert done.code == 137
    assert done.row["outcome"] == "hang"
    assert "caller holds the interpreter lock in a native call" in done.row["reason"]
    assert "caller holds the interpreter lock in a native call" in done.err


@pytest.mark.skipif(pyspy() is None, reason="py-spy is not installed: a held interpreter lock cannot be seen into")
def test_native_code_that_computes_with_the_interpreter_is_named(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, str(PROGRAMS / "searching.py"), options=KILL)
    assert (done.code, done.row["outcome"]) == (137, "hang")
    assert "searcher holds the interpreter lock in a native call that has not returned: match (" in done.row["reason"]
    assert "searcher holds the interpreter lock in a native call" in done.err


def test_a_stopped_program_is_no_hang_and_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        watching(run, sys.executable, str(PROGRAMS / "stopped.py"), options=KILL),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=tmp_path,
    )
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        (beat,) = run.glob("trials/*/process.json")
        pid = int(beat.parent.name.removeprefix("process-"))
        os.kill(pid, signal.SIGSTOP)
        told = process.stderr.readline().decode()
        assert told == (
            f"harness watch: process {pid} is stopped, by a signal or a debugger: kill -CONT {pid} lets it go on\n"
        )
        while time.time() - beat.stat().st_mtime < TIMEOUT_S + SLACK_S + 1 and limit.is_alive():
            time.sleep(0.05)  # until silence of a process that runs would have been a hang
        os.kill(pid, signal.SIGCONT)
        out, err = process.communicate(b"\n", timeout=LIMIT_S)
    finally:
        limit.cancel()
        process.kill()
    assert (process.returncode, out) == (0, b"well\n"), err
    row = json.loads((run / "results.jsonl").read_text())
    assert (row["outcome"], row["facts"]["stuck"]) == ("ok", [])
    assert "hang" not in err.decode()


def test_a_hang_is_reported_and_a_program_that_goes_on_ends_as_ever(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import os, threading\n"
        "lock = threading.Lock()\n"
        "ends = os.pipe()\n"
        "def use():\n"
        "    with lock:\n"
        "        pass\n"
        "def wait_for_a_person():\n"
        "    os.read(0, 1)\n"
        "    os.write(ends[1], b'x')\n"
        "with lock:\n"
        "    user = threading.Thread(target=use, name='user')\n"
        "    user.start()\n"
        "    threading.Thread(target=wait_for_a_person).start()\n"
        "    os.read(ends[0], 1)\n"
        "user.join()\n"
    )
    process = subprocess.Popen(
        watching(tmp_path / "run", sys.executable, str(script), options=("--hang-timeout", "1.5")),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=tmp_path,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    told = process.stderr.readline().decode()
    assert "user wait" in told
    os.write(process.stdin.fileno(), b"x")
    _, rest = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    row = json.loads((tmp_path / "run" / "results.jsonl").read_text())
    assert row["outcome"] == "ok"
    (stuck,) = row["facts"]["stuck"]
    assert stuck["ended_s"] > stuck["at_s"]
    assert "it went on after" in " ".join(rest.decode().split())


def test_pauses_below_the_timeout_are_no_hang(tmp_path: Path) -> None:
    done = watch(
        tmp_path / "run",
        sys.executable,
        str(PROGRAMS / "healthy.py"),
        "4.5",
        str(TIMEOUT_S),
        options=("--hang-timeout", str(TIMEOUT_S)),
    )
    assert done.out == "healthy\n"
    assert done.row["facts"]["stuck"] == []
    assert done.row["outcome"] == "ok"


@pytest.mark.parametrize("how", ["ticks", "buffer", "timer", "loop", "child", "signal"])
def test_what_goes_on_by_itself_is_no_hang(tmp_path: Path, how: str) -> None:
    """Each stands still for twice the timeout. Killed if it were called a hang."""
    done = watch(
        tmp_path / "run",
        sys.executable,
        str(PROGRAMS / "goes_on.py"),
        how,
        str(2 * TIMEOUT_S + 2),
        options=("--hang-timeout", str(TIMEOUT_S), "--on-hang", "kill"),
    )
    assert (done.code, done.out) == (0, "went on\n"), done.err
    assert done.row["facts"]["stuck"] == []


def test_a_server_without_a_request_is_no_hang(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import socket, threading\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "server.settimeout(2.5)\n"
        "def serve():\n"
        "    try:\n"
        "        server.accept()\n"
        "    except TimeoutError:\n"
        "        print('nobody came', flush=True)\n"
        "thread = threading.Thread(target=serve)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    done = watch(tmp_path / "run", sys.executable, str(script), options=("--hang-timeout", "1"))
    assert done.out == "nobody came\n"
    assert done.row["facts"]["stuck"] == []


def test_a_watch_does_not_delay_the_end(tmp_path: Path) -> None:
    """A daemon thread that never ends, and a look that is due later, hold nobody up."""
    code = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    began = time.monotonic()
    assert watch(tmp_path / "run", sys.executable, "-c", code, options=("--hang-timeout", "60")).code == 0
    assert time.monotonic() - began < 30
