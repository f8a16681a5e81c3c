"""Parts of the benchmarks that need no GPU: how costs are added up, and how products are timed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks import drafter_step, probe_cost
from tests.benchmarks.probe_cost import Cost, nanoseconds_a_reading, step_seconds_and_events


def test_a_reading_of_memory_counts_with_what_it_costs() -> None:
    assert Cost(100.0, 5_000.0).of(21.0, 1.0) == 20 * 100 + 5_000
    assert Cost(100.0, math.nan).of(21.0, 0.0) == 2_100


def test_the_share_of_a_step_has_the_readings_in_it() -> None:
    """A step of 1 ms with 11 events, one of which is of memory."""
    seconds = {"on": [1e-3], "off": [1e-3], "off again": [1e-3]}
    found = probe_cost._figures("cuda:0", seconds, [(11.0, 1.0)], Cost(100.0, 9_000.0))
    assert found["share"] == pytest.approx(0.01)
    assert (found["events_a_step"], found["readings_a_step"], found["reading_ns"]) == (11.0, 1.0, 9_000.0)
    on_cpu = probe_cost._figures("cpu", seconds, [(11.0, 0.0)], Cost(100.0, math.nan))
    assert on_cpu["reading_ns"] is None, "nan is no JSON"
    assert on_cpu["share"] == pytest.approx(0.0011)


def test_readings_are_counted_among_the_events_of_a_warm_step(tmp_path: Path) -> None:
    steps = range(probe_cost.WARM + 4)
    events = [
        {"w": worker, "k": kind, "t": step * 1_000_000 + offset}
        for step in steps
        for worker, kind, offset in (
            ("drafter-0", "region.enter", 100), ("drafter-0", "step.done", 200), ("drafter-0", "memory", 300),
            ("target-0", "memory", 400),
        )
    ]  # fmt: skip
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert step_seconds_and_events(tmp_path) == (1e-3, 3.0, 1.0)


def test_what_is_timed_is_the_probe_s_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert math.isnan(nanoseconds_a_reading("cpu"))
    asked: list[int | None] = []
    told = {name: {"all": {"current": 1}} for name in ("allocated_bytes", "reserved_bytes")}

    def answer(device: int | None) -> dict[str, Any]:
        asked.append(device)
        return told

    monkeypatch.setattr(torch, "ones", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", answer)
    assert probe_cost._reading("cuda:0/cuda:1+cuda:2") > 0
    assert len(asked) == 20_000
    assert set(asked) == {1}


def test_the_rate_of_products_is_of_runs_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run takes a second and a hundredth for launch and wait: the rate is of all products in it."""
    runs: list[int] = []
    made: list[tuple[int, ...]] = []

    def timed(function: Any) -> float:
        before = len(made)
        function()
        runs.append(len(made) - before)
        return 1.01

    def randn(*shape: int, **_: object) -> torch.Tensor:
        return torch.empty(shape, device="meta")

    monkeypatch.setattr(drafter_step, "seconds", timed)
    monkeypatch.setattr(torch, "randn", randn)
    monkeypatch.setattr(torch, "mm", lambda a, b, out: made.append((*a.shape, b.shape[1])))
    rate = drafter_step.matrix_rate(torch.device("meta"))
    assert set(runs) == {drafter_step.RUN}
    assert drafter_step.RUN >= 8
    assert rate == pytest.approx(max(2.0 * drafter_step.RUN * math.prod(shape) / 1.01 for shape in made))
