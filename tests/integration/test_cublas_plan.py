"""The plan of cublas-workspaces-freed without a GPU: its order can be had, and so can its counterfactual's."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from harness.control.executors import LocalExecutor
from harness.control.reproduce import reproduce
from harness.core.endings import Effect
from harness.core.scenario import Scenario
from harness.hazards import find


def test_its_order_and_its_counterfactuals_come_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    case = dataclasses.replace(
        find("cublas-workspaces-freed").program,
        scenario=Scenario(workload="cpu_programs:Workspaces"),
        effect=Effect(fact="effect"),
    )
    executor = LocalExecutor(jobs=1)
    try:
        found = reproduce(case, executor, tmp_path, times=1, note=lambda _: None)
    finally:
        executor.close()
    assert (found.reproduced, found.counterfactual_ordered) == (1, 1), found.ending.reason
    workers = found.row["workers"]
    assert {name: worker["steps_ok"] for name, worker in workers.items()} == dict.fromkeys(workers, 1)
    cores = {name: worker["facts"]["cores"] for name, worker in workers.items()}
    recorder = cores.pop("recorder")
    (shared,) = {tuple(of) for of in cores.values()}
    assert len(shared) == 1
    assert os.cpu_count() == 1 or not set(shared) & set(recorder)
