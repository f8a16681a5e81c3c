"""Planted hangs: the cycle or the culprit is named in every one, by the watchdog of a trial and by `harness dump`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from planted_hangs import IN_TIME_S, PLANTED, Planted

from harness.analysis.explain import match
from harness.control.dump import ProcessDump, dump_process
from harness.control.dump_source import read_source
from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.errors import UserError
from harness.core.scenario import Scenario
from harness.report.process_dump import process_json
from tests.soak.healthy_pauses import pauses_request

HERE = Path(__file__).parent
PROGRAMS = HERE / "hang_programs"
TIMEOUT_S = 2.0
each = pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Every program as a trial: name → its row."""
    base = tmp_path_factory.mktemp("trials")
    found: dict[str, dict[str, Any]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
        executor = LocalExecutor(jobs=7)  # they wait, mostly
    pausing = base / "pauses"
    pausing.mkdir()
    requests = [pauses_request(pausing, seconds=12.0, hang_timeout_s=2.5)]  # beside them: it takes the longest
    for planted in PLANTED:
        folder = base / planted.name
        folder.mkdir()
        requests.append(
            TrialRequest(
                planted.name,
                Scenario(workload=f"hang_workloads:{planted.name}"),
                0,
                folder,
                timeout_s=60.0,
                hang_timeout_s=TIMEOUT_S,
            )
        )

    def keep(row: dict[str, Any]) -> None:
        found[row["trial"]] = row

    try:
        executor.wait_ready()
        executor.run(requests, lambda _: None, keep)
    finally:
        executor.close()
    return found


@pytest.fixture(scope="module")
def dumps() -> Iterator[dict[str, ProcessDump]]:
    """Every program by itself, with nothing of the harness in it, dumped once it hangs."""
    environment = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    running = {
        planted.name: subprocess.Popen(
            [sys.executable, str(PROGRAMS / f"{planted.name}.py")],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for planted in PLANTED
    }
    deadline = time.monotonic() + 220.0  # all import torch at once, on a busy machine; a test may take 300 s
    try:
        with ThreadPoolExecutor(2) as pool:
            yield dict(pool.map(lambda pair: (pair[0], _when_stuck(pair[0], pair[1].pid, deadline)), running.items()))
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _when_stuck(name: str, pid: int, deadline: float) -> ProcessDump:
    """The first dump in which what is planted is found and no thread moves; the last one at the deadline."""
    while True:
        try:
            found = dump_process(pid, native=True, timeout_s=15.0)
        except UserError:  # it has only begun, and is no Python process yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
            continue
        settled = all(thread.still for thread in found.threads) and len(found.threads) > 1
        expected = next(planted.kind for planted in PLANTED if planted.name == name)
        if settled and [finding.kind for finding in found.diagnosis.findings] == [expected]:
            return found
        if time.monotonic() > deadline:
            return found
        time.sleep(0.2)


@each
def test_the_watchdog_names_it_in_time(rows: dict[str, dict[str, Any]], planted: Planted) -> None:
    row = rows[planted.name]
    assert row["outcomes"] == [planted.label], row["reason"]
    for part in planted.watched:
        assert part in row["reason"]
    if planted.kind != "gil":  # told by the executor, which takes the evidence of all these trials in turn
        *_, before, told = row["last_events"]
        assert told["k"] == planted.label
        assert (told["t"] - before["t"]) / 1e9 < TIMEOUT_S + IN_TIME_S


def test_pauses_of_nine_tenths_of_the_timeout_raise_no_alarm(rows: dict[str, dict[str, Any]]) -> None:
    """The long version is `python -m tests.soak.healthy_pauses`."""
    row = rows["pauses"]
    assert row["outcomes"] == ["ok"], row["reason"]
    (rounds,) = {worker["facts"]["rounds"] for worker in row["workers"].values()}
    assert rounds >= 5, "most kinds of pause"


@each
def test_a_dump_of_the_plain_program_names_it(dumps: dict[str, ProcessDump], planted: Planted) -> None:
    found = dumps[planted.name].diagnosis.findings
    assert [finding.kind for finding in found] == [planted.kind]
    for part in planted.says:
        assert part in found[0].text


HAZARDS = {
    "user_lock_inversion": "user-lock-inversion",
    "compile_lock_engine": "compile-lock-engine-deadlock",
    "recompute_lock": "user-lock-engine-deadlock",
}
"""Planted hang → what it is in the catalogue; the others are not of torch."""


def test_a_dump_names_the_hazard_of_the_catalogue(dumps: dict[str, ProcessDump]) -> None:
    named = {name: [match.hazard.id for match in dump.hazards] for name, dump in dumps.items() if dump.hazards}
    assert named == {name: [hazard] for name, hazard in HAZARDS.items()}
    (found,) = dumps["user_lock_inversion"].hazards
    assert {(role.role, role.thread.rsplit(" ", 1)[-1]) for role in found.roles} == {("A", '"compiler"'), ("B", '"holder"')}


def test_what_a_dump_wrote_as_json_is_explained_elsewhere(dumps: dict[str, ProcessDump], tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(process_json(dumps["user_lock_inversion"]), indent=2), encoding="utf-8")
    found = match(read_source(str(file)).dump)
    assert [each.roles for each in found] == [each.roles for each in dumps["user_lock_inversion"].hazards]
