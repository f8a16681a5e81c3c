"""Trials of real torch code: what the probes see, and how an FX error names the thread that caused it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario
from harness.core.versions import parse_version

TORCH = parse_version(version("torch"))
PER_THREAD_CONFIG = TORCH >= (2, 12)
FLAG_IS_GLOBAL = TORCH < (2, 14)


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        found = LocalExecutor(jobs=1)
        yield found
        found.close()


def run(executor: LocalExecutor, folder: Path, **axes: Any) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    folder.mkdir(exist_ok=True)
    executor.run([TrialRequest("t", Scenario(**axes), 0, folder, timeout_s=120)], lambda _: None, rows.append)
    return rows[0]


def test_a_healthy_pipeline_is_ok_with_every_probe_working(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, tmp_path, lock="compile_gate", checkpoint="non_reentrant", steps=4, drafters=2)
    assert row["outcomes"] == ["ok"], (row["reason"], row["errors"])
    assert row["steps_ok"] == 8
    assert row["dense_calls"] == 0
    assert row["compiles"] >= 1
    assert set(row["probes"].values()) == {"ok"}
    losses = [row["workers"][f"drafter-{i}"]["losses"] for i in range(2)]
    assert all(len(found) == 4 and all(isinstance(x, float) for x in found) for found in losses)


@pytest.mark.skipif(not FLAG_IS_GLOBAL, reason="the FX-tracing flag is per thread from torch 2.14 on")
def test_an_fx_error_names_the_tracing_thread_its_worker_region_and_stack(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    row = run(executor, tmp_path, workload="torch_workloads:FxCollision")
    assert row["outcome"] == "fx_error"
    assert row["fx_errors"] == 1
    (error,) = row["errors"]
    assert (error["worker"], error["region"]) == ("drafter-1", "forward")
    assert "Detected that you are using FX" in error["traceback"]
    assert "in call" in error["traceback"], "the caller's own frames are there"
    (tracer,) = error["tracers"]
    assert (tracer["thread"], tracer["worker"], tracer["region"]) == ("drafter-0", "drafter-0", "mask")
    assert "torch_workloads.py" in tracer["stack"]
    assert "in forward" in tracer["stack"], "where it was at that very moment"


@pytest.mark.skipif(not PER_THREAD_CONFIG, reason="Dynamo's configuration is per thread from torch 2.12 on")
def test_a_limit_raised_in_main_leaves_the_workers_dense(executor: LocalExecutor, tmp_path: Path) -> None:
    axes = {"lock": "every_step", "shapes": "variable", "steps": 12, "drafters": 2}
    row = run(executor, tmp_path, dynamo="limit_in_main", **axes)
    assert "dense" in row["outcomes"]
    assert row["dense_calls"] > 0
    facts = [worker["facts"] for worker in row["workers"].values()]
    assert any("flex_attention" in fact.get("first_dense_stack", "") for fact in facts)


def test_a_parameter_without_gradient_is_a_failure(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, tmp_path, workload="torch_workloads:NoGradient")
    assert row["outcomes"] == ["no_grad"]
    assert "layers.0.self_attn.k_proj.weight" in row["reason"]


def test_a_scenario_that_cannot_run_here_is_skipped_with_its_reason(executor: LocalExecutor, tmp_path: Path) -> None:
    row = run(executor, tmp_path, backend="inductor")
    assert row["outcomes"] == ["skipped"]
    assert "inductor" in row["reason"]


def test_with_probes_off_nothing_but_regions_and_steps_is_written(executor: LocalExecutor, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    request = TrialRequest("t", Scenario(steps=2, drafters=1), 0, tmp_path, probes=False)
    executor.run([request], lambda _: None, rows.append)
    assert rows[0]["outcomes"] == ["ok"]
    assert {state for name, state in rows[0]["probes"].items() if name != "strategy"} == {"off"}
    kinds = {line.split('"k":"')[1].split('"')[0] for line in (tmp_path / "events.jsonl").read_text().splitlines()}
    assert {kind.split(".")[0] for kind in kinds} <= {"region", "step", "worker", "subject", "wait"}
