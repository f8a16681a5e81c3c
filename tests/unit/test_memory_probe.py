"""What the memory probe writes after a step, with an allocator that is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.core.scenario import Scenario
from harness.subject.eventlog import EventLog
from harness.subject.identity import Threads
from harness.subject.probes.base import Scope
from harness.subject.probes.memory import MemoryProbe, in_use
from harness.subject.record import Trial


def nested(device: int) -> dict[str, Any]:
    """As torch tells it, much of it left out."""
    kinds = ("all", "large_pool", "small_pool")
    return {
        "num_ooms": 0,
        **{
            name: {kind: {"current": first + device + 7 * (kind != "all"), "peak": 9_999} for kind in kinds}
            for name, first in (("allocated_bytes", 100), ("reserved_bytes", 200), ("active_bytes", 300))
        },
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Which devices torch was asked for, by each of its functions that makes all numbers of one."""
    found: list[int | None] = []

    def answer(device: int | None = None) -> dict[str, Any]:
        found.append(device)
        return nested(0 if device is None else device)

    def refuse(device: object = None) -> dict[str, Any]:
        raise AssertionError("all numbers are made, flattened and sorted")

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", answer)
    monkeypatch.setattr(torch.cuda.memory, "memory_stats", refuse)
    return found


def test_a_step_asks_the_allocator_of_its_device_once(tmp_path: Path, asked: list[int | None]) -> None:
    threads = Threads()
    log = EventLog(tmp_path, threads)
    probe = MemoryProbe(Scope(log, threads, Trial(), Scenario(devices="cuda:0+cuda:1")))
    assert probe.install() == "ok"
    probe.place({"target-0": "cuda:0", "drafter-0": "cuda:1", "other": "cpu"})
    for worker in ("drafter-0", "target-0", "other", "nobody"):
        probe.stepped(worker)
    log.close()
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    memory = [(event["d"], event["a"], event["r"]) for event in told if event["k"] == "memory"]
    assert memory == [("cuda:1", 101, 201), ("cuda:0", 100, 200)]
    assert asked == [1, 0]


def test_without_cuda_nothing_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's own functions say."""
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: {})
    assert in_use(0) == (0, 0)


def test_a_torch_without_these_numbers_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cuda, "memory_stats_as_nested_dict")
    threads = Threads()
    log = EventLog(tmp_path, threads)
    probe = MemoryProbe(Scope(log, threads, Trial(), Scenario(devices="cuda:0")))
    assert probe.install().startswith("unavailable: torch ")
    assert MemoryProbe(Scope(log, threads, Trial(), Scenario())).install() == ""
    log.close()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_numbers_are_torchs() -> None:
    kept = torch.ones(5_000_000, device="cuda:0")
    assert in_use(0) == in_use(None) == (torch.cuda.memory_allocated(0), torch.cuda.memory_reserved(0))
    del kept
