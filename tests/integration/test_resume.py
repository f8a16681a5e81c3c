"""A run that is killed or interrupted at any moment loses nothing, runs nothing twice, and ends as if it had not been.

The moments are random, with the seed in the name of the test: at a time from the start on, or shortly after some row.
Subjects are tiny (`tiny_subjects`) where hundreds are needed; one test has true ones.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tagged import Tagged, needs_proc
from tiny_subjects import write_python

pytestmark = [pytest.mark.slow, needs_proc]

MATRIX = """\
schema = 1
[defaults]
workload = "nothing"
steps = 1
repeats = 8
[axes]
lock = ["none", "first_step"]
drafters = [1, 2]
"""
TRIALS = 32
LONGEST_S = 120.0


class Runs:
    """Runs of one matrix in one folder after another."""

    def __init__(self, base: Path, python: str) -> None:
        self.base = base
        self.python = python
        self.number = 0
        (base / "m.toml").write_text(MATRIX)
        self.begun = False

    @property
    def here(self) -> Path:
        return self.base / f"run-{self.number}"

    @property
    def results(self) -> Path:
        return self.here / "out" / "results.jsonl"

    def next(self) -> None:
        """Go on to a new folder."""
        self.number += 1
        self.begun = False
        self.here.mkdir()

    def start(self) -> Tagged:
        """Begin or resume the run of this folder."""
        command = [sys.executable, "-m", "harness.cli", "run", "--out", "out", "--python", self.python, "-j2", "--json"]
        begun = (self.here / "out" / "environment.json").exists()
        return Tagged([*command, *(["--resume", "-q"] if begun else ["../m.toml", "-q"])], self.here)

    def finish(self) -> list[Any]:
        """Resume to the end; the scenarios of the document that is printed."""
        code, said = self.start().end(LONGEST_S)
        assert code == 1, said
        document = json.loads(said[said.index("{") :])
        return list(document["scenarios"])

    def rows(self) -> list[dict[str, Any]]:
        """The whole rows, in file order."""
        lines = self.results.read_bytes().split(b"\n")[:-1] if self.results.exists() else []
        return [json.loads(line) for line in lines]

    def finished(self) -> set[str]:
        """Trials with a row, and those that have ended without getting theirs."""
        rows = {row["trial"] for row in self.rows() if row["outcome"] != "interrupted"}
        return rows | {path.parent.name for path in self.here.glob("out/trials/*/result.json")}

    def started(self) -> Counter[str]:
        """How often each trial was started."""
        log = self.here / "started.txt"
        return Counter(log.read_text().split() if log.exists() else ())


def wait_for_a_moment(runs: Runs, run: Tagged, chance: random.Random, whole_s: float) -> None:
    """Return at a random time after the start, or shortly after a random one of the next rows, or when it has ended."""
    deadline = time.monotonic() + chance.uniform(0.0, whole_s)
    rows = len(runs.rows()) + chance.randint(1, 6) if chance.random() < 0.6 else None
    longest = time.monotonic() + LONGEST_S
    while run.process.poll() is None and time.monotonic() < longest:
        if rows is None and time.monotonic() >= deadline:
            return
        if rows is not None and runs.results.exists() and runs.results.read_bytes().count(b"\n") >= rows:
            time.sleep(chance.uniform(0.0, 0.03))
            return
        time.sleep(0.002)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any], float]:
    """An interpreter with tiny subjects, the scenarios of a run that nothing interrupts, and how long that takes."""
    base = tmp_path_factory.mktemp("whole")
    python = str(write_python(base / "python"))
    runs = Runs(base, python)
    runs.next()
    began = time.monotonic()
    scenarios = runs.finish()
    assert sum(item["trials"] for item in scenarios) == TRIALS
    assert set(runs.started().values()) == {1}
    return python, scenarios, time.monotonic() - began


@pytest.mark.parametrize("seed", range(5))
def test_kill_at_ten_random_moments(tmp_path: Path, tiny: tuple[str, list[Any], float], seed: int) -> None:
    python, expected, whole_s = tiny
    chance = random.Random(seed)
    runs = Runs(tmp_path, python)
    runs.next()
    kills = 0
    while kills < 10:
        kills += kill_once(runs, chance, whole_s, expected)
    if runs.begun:
        assert runs.finish() == expected
        assert len(runs.finished()) == TRIALS


def kill_once(runs: Runs, chance: random.Random, whole_s: float, expected: list[Any] | None) -> int:
    """Kill a run at a random moment and hold that nothing is lost or done again; 1 if it still ran."""
    text, finished, started = runs.results.read_bytes() if runs.begun else b"", runs.finished(), runs.started()
    run = runs.start()
    wait_for_a_moment(runs, run, chance, whole_s)
    killed = run.process.poll() is None
    run.process.kill()
    code, said = run.end()
    assert run.left() == [], "the start server and its subjects end with the run"
    assert killed or (code == 1 and "Traceback" not in said), said  # 1: some of these failures are not permitted
    runs.begun = runs.results.exists()
    assert not set(runs.started() - started) & finished, "a finished trial was run again"
    assert runs.finished() >= finished
    whole = text[: text.rfind(b"\n") + 1]
    assert not runs.begun or runs.results.read_bytes().startswith(whole), "a row was lost"
    if not killed:
        rows = [row["trial"] for row in runs.rows()]
        assert len(rows) == len(set(rows)) == TRIALS
        if expected is not None:
            assert json.loads(said[said.index("{") :])["scenarios"] == expected
        runs.next()
    return int(killed)


@pytest.mark.parametrize("seed", range(4))
def test_interrupt_at_five_random_moments(tmp_path: Path, tiny: tuple[str, list[Any], float], seed: int) -> None:
    """Interrupted and resumed, a run has the summary of one that was not."""
    python, expected, whole_s = tiny
    chance = random.Random(100 + seed)
    runs = Runs(tmp_path, python)
    interrupted = 0
    while interrupted < 5:
        runs.next()
        run = runs.start()
        wait_for_a_moment(runs, run, chance, whole_s)
        run.process.send_signal(signal.SIGINT)
        code, said = run.end()
        assert run.left() == []
        # -SIGINT: before the command line was there, when nothing had begun
        assert code in (1, 3) or (code == -signal.SIGINT and not runs.here.joinpath("out").exists()), said
        interrupted += code == 3
        finished = {row["trial"] for row in runs.rows() if row["outcome"] != "interrupted"}
        before = runs.started()
        assert runs.finish() == expected
        assert not set(runs.started() - before) & finished
        assert Counter(row["trial"] for row in runs.rows() if row["outcome"] != "interrupted").most_common(1)[0][1] == 1


def test_kills_with_true_subjects(tmp_path: Path) -> None:
    chance = random.Random(7)
    runs = Runs(tmp_path, sys.executable)
    runs.next()
    for _ in range(2):
        kept = {row["trial"]: row for row in runs.rows()}
        run = runs.start()
        wait_for_rows(runs, run, len(kept) + 2)
        time.sleep(chance.uniform(0.0, 0.5))
        run.process.kill()
        run.end()
        # Until a start server has imported torch it does not see that nobody waits for it.
        assert run.left(60.0) == []
        assert {row["trial"]: row for row in runs.rows() if row["trial"] in kept} == kept
    code, said = runs.start().end(LONGEST_S)
    assert code == 0, said
    rows = [row["trial"] for row in runs.rows() if row["outcome"] != "interrupted"]
    assert len(rows) == len(set(rows)) == TRIALS
    assert {row["outcome"] for row in runs.rows()} == {"ok"}


def wait_for_rows(runs: Runs, run: Tagged, count: int) -> None:
    """Until there are so many rows, or the run has ended."""
    longest = time.monotonic() + LONGEST_S
    while run.process.poll() is None and len(runs.rows()) < count and time.monotonic() < longest:
        time.sleep(0.01)
