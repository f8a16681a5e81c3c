"""Out of memory: the peak from the device to the reader's eyes, and no verdict on a lock."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_folder import write_folder
from fake_runs import row
from rich.console import Console

from harness.analysis.summary import summarise
from harness.control.bisect_evidence import kind_of, reason_of
from harness.core.scenario import Scenario
from harness.report import pack
from harness.report.embed import embed
from harness.report.html import write_report
from harness.report.rundata import read_run
from harness.report.scenarios import scenario_views
from harness.report.terminal import print_run
from harness.report.view import RunView
from harness.subject import out_of_memory
from harness.subject.eventlog import EventLog
from harness.subject.identity import Threads
from harness.subject.probes.base import Scope
from harness.subject.probes.memory import MemoryProbe
from harness.subject.record import Trial
from harness.subject.result import build

GIB = 2**30
PEAKS = {"cuda:0": {"peak_allocated": 131 * GIB, "peak_reserved": 139 * GIB, "total": 140 * GIB}}
TOLD = "peak on cuda:0 131.0 GiB allocated, 139.0 GiB reserved, of 140.0 GiB; too little memory is no fault of a lock"
ON_CUDA = Scenario(devices="cuda:0")


def document(*, stuck: tuple[str, str] = ("", ""), first: str = "", memory: Any = PEAKS) -> dict[str, Any]:
    """Of a trial that ran out of memory, after another finding if one is named."""
    trial = Trial()
    if first:
        trial.problems.append((1, first, "two parameters got no gradient"))
    trial.error(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), Threads().current(), "drafter-0", 5)
    return build(trial, ON_CUDA, stuck=stuck, probes={}, extra={"memory": memory}, torch_version="2.13.0")


def out_of_memory_row(scenario: Scenario, repeat: int = 0) -> dict[str, Any]:
    told = document()
    kept = {key: told[key] for key in ("outcome", "outcomes", "reason", "errors", "memory")}
    made: dict[str, Any] = row(scenario, repeat, **kept, startup_s=None, tokens_per_s=None)
    return made


def test_the_reason_is_the_peak_before_what_came_later_and_after_what_came_first() -> None:
    assert document()["outcomes"] == ["out_of_memory"]
    assert document()["reason"] == TOLD
    assert document(stuck=("hang", "nobody moves"))["reason"] == f"{TOLD}; nobody moves"
    assert document(first="no_grad")["reason"] == f"two parameters got no gradient; {TOLD}"
    assert document(memory={})["reason"].startswith("peak ")


class _Properties:
    total_memory = 140 * GIB


def test_the_probe_tells_the_peak_also_of_a_setup_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before workers are placed it asks for every device that the scenario names."""
    allocated = {"cuda:0": 131 * GIB, "cuda:1": 7 * GIB}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", allocated.__getitem__)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 139 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: _Properties)
    threads = Threads()
    log = EventLog(tmp_path, threads)
    probe = MemoryProbe(Scope(log, threads, Trial(), Scenario(devices="cuda:0/cuda:1")))
    assert probe.install() == "ok"
    assert {device: one["peak_allocated"] for device, one in probe.peaks().items()} == allocated
    probe.place({"drafter-0": "cuda:0"})
    assert probe.peaks() == PEAKS
    log.close()


def test_of_several_processes_the_highest_peak() -> None:
    """lock=process: each drafter has its own."""
    other = {"cuda:0": {**PEAKS["cuda:0"], "peak_allocated": 5 * GIB}, "cuda:1": PEAKS["cuda:0"]}
    assert out_of_memory.highest([other, {}, PEAKS]) == {"cuda:0": PEAKS["cuda:0"], "cuda:1": PEAKS["cuda:0"]}


def test_no_verdict_on_the_lock_and_the_peak_in_the_terminal() -> None:
    rows = [out_of_memory_row(ON_CUDA, repeat) for repeat in range(3)]
    assert [kind_of(one) for one in rows] == ["incomplete"] * 3
    assert reason_of(rows[0]) == f"out_of_memory: {TOLD}"
    summary = summarise(rows)
    (item,) = summary.scenarios
    assert (item.verdict, item.failures, item.conclusive) == ("incomplete", 0, 0)
    stream = io.StringIO()
    print_run(
        Console(file=stream, width=80),
        RunView("m", "runs/a", summary, (), {}, "2.13.0", "1 × H200", resume="harness run --resume"),
    )
    said = " ".join(stream.getvalue().split())
    assert f"3 × out_of_memory: {TOLD}" in said
    assert "evidence of a failure" not in said


def test_the_peak_in_the_report_and_on_the_trials_page(tmp_path: Path) -> None:
    matrix = 'schema = 1\n[axes]\ndevices = ["cuda:0"]\n'
    run = write_folder(tmp_path / "run", [out_of_memory_row(ON_CUDA)], matrix=matrix)
    assert f"1 × out_of_memory: {TOLD}" in write_report(run).read_text("utf-8")
    data = read_run(run)
    found = embed(data, scenario_views(data))
    (block,) = [pack.inflated(text) for _, text in found.blocks]
    assert TOLD in str(block)
    assert "['peak memory on cuda:0', '131.0 GiB allocated, 139.0 GiB reserved, 140.0 GiB there']" in str(block)
